/* The compiled core of stallscope.profiler: interval kernels and the trace-event tokeniser.
 *
 * Everything here has a Python twin with the same results (kernels_py.py, readers/event_fallback.py),
 * which the tests compare it with and which runs where no compiler was there. Inputs are untrusted:
 * every length is checked, every allocation can fail cleanly, nothing recurses.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <locale.h>

#include "_tokeniser.h"

/* ---------------------------------------------------------------------------------------------
 * Buffers handed over by NumPy
 */

#define MAX_BUFFERS 8

typedef struct {
    Py_buffer view[MAX_BUFFERS];
    int count;
} Buffers;

static void buffers_release(Buffers *b) {
    while (b->count > 0) PyBuffer_Release(&b->view[--b->count]);
}

/* Takes every argument as a contiguous buffer. The last `writable` ones are outputs. Each buffer's
 * item size is given by a letter: i = 4 bytes, q = 8 bytes. Returns 0, or -1 with an exception set. */
static int buffers_take(Buffers *b, PyObject *args, const char *items, int writable) {
    int n = (int)strlen(items);
    b->count = 0;
    if (PyTuple_Size(args) != n) {
        PyErr_Format(PyExc_TypeError, "expected %d arrays", n);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        int flags = PyBUF_SIMPLE | (i >= n - writable ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(PyTuple_GetItem(args, i), &b->view[i], flags) < 0) {
            buffers_release(b);
            return -1;
        }
        b->count = i + 1;
        size_t size = items[i] == 'q' ? 8 : 4;
        if ((size_t)b->view[i].len % size != 0 || (uintptr_t)b->view[i].buf % size != 0) {
            PyErr_Format(PyExc_ValueError, "array %d does not hold aligned items of %d bytes", i, (int)size);
            buffers_release(b);
            return -1;
        }
    }
    return 0;
}

static Py_ssize_t items8(const Buffers *b, int i) { return b->view[i].len / 8; }
static Py_ssize_t items4(const Buffers *b, int i) { return b->view[i].len / 4; }

static PyObject *wrong_sizes(Buffers *b) {
    buffers_release(b);
    PyErr_SetString(PyExc_ValueError, "arrays of different lengths");
    return NULL;
}

/* ---------------------------------------------------------------------------------------------
 * Nesting
 */

#define CLOCK_JITTER_NS 1000

/* Differences of absurd times wrap instead of being undefined. */
static int64_t difference(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

static int64_t saturating_add(int64_t a, int64_t b) {
    if (b > 0 && a > INT64_MAX - b) return INT64_MAX;
    if (b < 0 && a < INT64_MIN - b) return INT64_MIN;
    return a + b;
}

/* Rows are sorted by track, start, longest first. The stack holds the open rows of one track; it grows,
 * because Python stacks of a million frames exist. Returns -1 when memory runs out. */
static int nest_rows(Py_ssize_t n, const int32_t *track, const int64_t *start, const int64_t *dur,
                     int32_t *parent, int32_t *depth, int64_t *self, int64_t *end) {
    size_t capacity = 256, top = 0;
    int32_t *stack = malloc(capacity * sizeof *stack);
    if (!stack) return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        int64_t s = start[i], e = saturating_add(s, dur[i]);
        if (i == 0 || track[i] != track[i - 1]) top = 0;
        while (top > 0) {
            int64_t reach = end[stack[top - 1]];
            if (reach <= s) {
                top--;
                continue;
            }
            /* Ends later than the one that is open: a neighbour that clock jitter made overlap, unless
             * the overlap is longer than jitter or most of the span, which makes it an overrunning child. */
            if (e > reach && difference(reach, s) <= CLOCK_JITTER_NS &&
                difference(e, reach) > difference(reach, s)) {
                top--;
                continue;
            }
            if (e > reach) e = reach;
            break;
        }
        int32_t up = top > 0 ? stack[top - 1] : -1;
        parent[i] = up;
        depth[i] = (int32_t)top;
        end[i] = e;
        self[i] = difference(e, s);
        if (up >= 0) self[up] = difference(self[up], self[i]);
        if (top == capacity) {
            int32_t *more = realloc(stack, 2 * capacity * sizeof *stack);
            if (!more) {
                free(stack);
                return -1;
            }
            stack = more;
            capacity *= 2;
        }
        stack[top++] = (int32_t)i;
    }
    free(stack);
    return 0;
}

static PyObject *core_nest(PyObject *module, PyObject *args) {
    (void)module;
    Buffers b;
    if (buffers_take(&b, args, "iqqiiqq", 4) < 0) return NULL;
    Py_ssize_t n = items4(&b, 0);
    if (items8(&b, 1) != n || items8(&b, 2) != n || items4(&b, 3) != n || items4(&b, 4) != n ||
        items8(&b, 5) != n || items8(&b, 6) != n || n > INT32_MAX)
        return wrong_sizes(&b);
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = nest_rows(n, b.view[0].buf, b.view[1].buf, b.view[2].buf, b.view[3].buf, b.view[4].buf,
                       b.view[5].buf, b.view[6].buf);
    Py_END_ALLOW_THREADS
    buffers_release(&b);
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------------------------------------
 * Interval sets
 */

/* Union of spans sorted by start; empty ones are dropped. Returns the count, or -1 if they are unsorted.
 * Without a branch on the data: whether two kernels touch is as good as random. */
static Py_ssize_t union_spans(Py_ssize_t n, const int64_t *start, const int64_t *end, int64_t *out_start,
                              int64_t *out_end) {
    Py_ssize_t i = 0, last = 0;
    while (i < n && end[i] <= start[i]) i++;
    if (i == n) return 0;
    int64_t from = start[i], reach = end[i], before = start[i];
    int unsorted = 0;
    out_start[0] = from;
    out_end[0] = reach;
    for (i++; i < n; i++) {
        int64_t s = start[i], e = end[i];
        int empty = e <= s;
        unsorted |= !empty & (s < before);
        before = empty ? before : s;
        int apart = !empty & (s > reach);
        last += apart;
        from = apart ? s : from;
        reach = !empty & (e > reach) ? e : reach;
        out_start[last] = from;
        out_end[last] = reach;
    }
    return unsorted ? -1 : last + 1;
}

static PyObject *core_union(PyObject *module, PyObject *args) {
    (void)module;
    Buffers b;
    if (buffers_take(&b, args, "qqqq", 2) < 0) return NULL;
    Py_ssize_t n = items8(&b, 0), count;
    if (items8(&b, 1) != n || items8(&b, 2) < n || items8(&b, 3) < n) return wrong_sizes(&b);
    Py_BEGIN_ALLOW_THREADS
    count = union_spans(n, b.view[0].buf, b.view[1].buf, b.view[2].buf, b.view[3].buf);
    Py_END_ALLOW_THREADS
    buffers_release(&b);
    return PyLong_FromSsize_t(count);
}

/* What two sets both cover. The output needs room for n + m intervals. */
static Py_ssize_t intersect_sets(Py_ssize_t n, const int64_t *as, const int64_t *ae, Py_ssize_t m,
                                 const int64_t *bs, const int64_t *be, int64_t *out_start, int64_t *out_end) {
    Py_ssize_t i = 0, j = 0, count = 0;
    while (i < n && j < m) {
        int64_t s = as[i] > bs[j] ? as[i] : bs[j];
        int64_t e = ae[i] < be[j] ? ae[i] : be[j];
        if (s < e) {
            out_start[count] = s;
            out_end[count++] = e;
        }
        if (ae[i] < be[j])
            i++;
        else
            j++;
    }
    return count;
}

static PyObject *core_intersect(PyObject *module, PyObject *args) {
    (void)module;
    Buffers b;
    if (buffers_take(&b, args, "qqqqqq", 2) < 0) return NULL;
    Py_ssize_t n = items8(&b, 0), m = items8(&b, 2), count;
    if (items8(&b, 1) != n || items8(&b, 3) != m || items8(&b, 4) < n + m || items8(&b, 5) < n + m)
        return wrong_sizes(&b);
    Py_BEGIN_ALLOW_THREADS
    count = intersect_sets(n, b.view[0].buf, b.view[1].buf, m, b.view[2].buf, b.view[3].buf, b.view[4].buf,
                           b.view[5].buf);
    Py_END_ALLOW_THREADS
    buffers_release(&b);
    return PyLong_FromSsize_t(count);
}

/* How many of the sorted `values` are <= t. Gallops from `hint`: neighbouring questions have
 * neighbouring answers, which makes a sorted list of questions cost O(1) each. */
static Py_ssize_t count_up_to(const int64_t *values, Py_ssize_t n, Py_ssize_t hint, int64_t t) {
    Py_ssize_t lo, hi, step = 1;
    if (hint > 0 && values[hint - 1] > t) {
        hi = hint - 1;
        lo = hi - step;
        while (lo > 0 && values[lo - 1] > t) {
            hi = lo - 1;
            step *= 2;
            lo = hi - step;
        }
        if (lo < 0) lo = 0;
    } else {
        lo = hint;
        hi = lo;
        while (hi < n && values[hi] <= t) {
            lo = hi + 1;
            hi = lo + step;
            step *= 2;
        }
        if (hi > n) hi = n;
    }
    while (lo < hi) {
        Py_ssize_t mid = lo + (hi - lo) / 2;
        if (values[mid] <= t)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* An interval of a set with the covered length before it, side by side for the cache. */
typedef struct {
    int64_t start, end, before;
} Piece;

/* The set between two guards, so that the last piece at or before any time exists. NULL: no memory. */
static Piece *cover_of(Py_ssize_t m, const int64_t *start, const int64_t *end) {
    Piece *piece = malloc(((size_t)m + 2) * sizeof *piece);
    if (!piece) return NULL;
    piece[0] = (Piece){INT64_MIN, INT64_MIN, 0};
    int64_t before = 0;
    for (Py_ssize_t i = 0; i < m; i++) {
        piece[i + 1] = (Piece){start[i], end[i], before};
        before += difference(end[i], start[i]);
    }
    piece[m + 1] = (Piece){INT64_MAX, INT64_MAX, before};
    return piece;
}

/* The last piece that starts at or before t, looked for around `near`: questions come nearly sorted. */
static inline Py_ssize_t last_piece(const Piece *piece, Py_ssize_t m, Py_ssize_t near, int64_t t) {
    if (piece[near].start <= t && t < piece[near + 1].start) return near;
    Py_ssize_t step = 1, lo = near, hi = near + 1;
    if (piece[near].start > t) {
        while (lo > 0 && piece[lo].start > t) {
            hi = lo;
            lo = lo > step ? lo - step : 0;
            step *= 2;
        }
    } else {
        while (hi <= m && piece[hi].start <= t) {
            lo = hi;
            hi = hi + step <= m + 1 ? hi + step : m + 1;
            step *= 2;
        }
        if (hi > m + 1) hi = m + 1;
    }
    while (hi - lo > 1) {
        Py_ssize_t mid = lo + (hi - lo) / 2;
        if (piece[mid].start <= t)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static inline int64_t cover_before(const Piece *piece, int64_t t) {
    return piece->before + difference(t < piece->end ? t : piece->end, piece->start);
}

/* Covered length of each span. With `parent`, each span's cover is taken from its parent's: self time
 * inside the set. Children stand after their parent and within it, so one pass is enough. */
static int cover_spans(Py_ssize_t m, const int64_t *set_start, const int64_t *set_end, Py_ssize_t n,
                       const int64_t *start, const int64_t *end, const int32_t *parent, int64_t *out) {
    Piece *piece = cover_of(m, set_start, set_end);
    if (!piece) return -1;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        int64_t covered = 0;
        if (end[i] > start[i]) {
            at = last_piece(piece, m, at, start[i]);
            Py_ssize_t stop = last_piece(piece, m, at, end[i]);
            covered = difference(cover_before(&piece[stop], end[i]), cover_before(&piece[at], start[i]));
        }
        out[i] = covered;
        if (parent && parent[i] >= 0 && parent[i] < i) out[parent[i]] = difference(out[parent[i]], covered);
    }
    free(piece);
    return 0;
}

static PyObject *core_covered(PyObject *module, PyObject *args) {
    (void)module;
    Buffers b;
    if (buffers_take(&b, args, "qqqqq", 1) < 0) return NULL;
    Py_ssize_t m = items8(&b, 0), n = items8(&b, 2);
    if (items8(&b, 1) != m || items8(&b, 3) != n || items8(&b, 4) != n) return wrong_sizes(&b);
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = cover_spans(m, b.view[0].buf, b.view[1].buf, n, b.view[2].buf, b.view[3].buf, NULL, b.view[4].buf);
    Py_END_ALLOW_THREADS
    buffers_release(&b);
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *core_self_inside(PyObject *module, PyObject *args) {
    (void)module;
    Buffers b;
    if (buffers_take(&b, args, "qqqqiq", 1) < 0) return NULL;
    Py_ssize_t m = items8(&b, 0), n = items8(&b, 2);
    if (items8(&b, 1) != m || items8(&b, 3) != n || items4(&b, 4) != n || items8(&b, 5) != n)
        return wrong_sizes(&b);
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = cover_spans(m, b.view[0].buf, b.view[1].buf, n, b.view[2].buf, b.view[3].buf, b.view[4].buf,
                         b.view[5].buf);
    Py_END_ALLOW_THREADS
    buffers_release(&b);
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------------------------------------
 * Joins and queues
 */

static uint64_t mix64(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* For each id in `right`, the first index of that id in `left`, or -1. Ids equal to `none` never match. */
static int join_ids(int64_t none, Py_ssize_t n, const int64_t *left, Py_ssize_t m, const int64_t *right,
                    int32_t *out) {
    size_t size = 16;
    while (size < (size_t)n * 2) size *= 2;
    int32_t *slot = malloc(size * sizeof *slot);
    if (!slot) return -1;
    memset(slot, 0xff, size * sizeof *slot);
    for (Py_ssize_t i = 0; i < n; i++) {
        if (left[i] == none) continue;
        size_t k = mix64((uint64_t)left[i]) & (size - 1);
        while (slot[k] >= 0 && left[slot[k]] != left[i]) k = (k + 1) & (size - 1);
        if (slot[k] < 0) slot[k] = (int32_t)i;
    }
    for (Py_ssize_t i = 0; i < m; i++) {
        out[i] = -1;
        if (right[i] == none) continue;
        size_t k = mix64((uint64_t)right[i]) & (size - 1);
        while (slot[k] >= 0 && left[slot[k]] != right[i]) k = (k + 1) & (size - 1);
        out[i] = slot[k];
    }
    free(slot);
    return 0;
}

static PyObject *core_join(PyObject *module, PyObject *args) {
    (void)module;
    Buffers b;
    if (buffers_take(&b, args, "qqqi", 1) < 0) return NULL;
    Py_ssize_t n = items8(&b, 1), m = items8(&b, 2);
    if (items8(&b, 0) != 1 || items4(&b, 3) != m || n > INT32_MAX) return wrong_sizes(&b);
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = join_ids(*(const int64_t *)b.view[0].buf, n, b.view[1].buf, m, b.view[2].buf, b.view[3].buf);
    Py_END_ALLOW_THREADS
    buffers_release(&b);
    if (failed) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* out[i]: how many of the sorted `values` are <= points[i]. */
static PyObject *core_count_up_to(PyObject *module, PyObject *args) {
    (void)module;
    Buffers b;
    if (buffers_take(&b, args, "qqq", 1) < 0) return NULL;
    Py_ssize_t n = items8(&b, 0), m = items8(&b, 1), at = 0;
    if (items8(&b, 2) != m) return wrong_sizes(&b);
    const int64_t *values = b.view[0].buf, *points = b.view[1].buf;
    int64_t *out = b.view[2].buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < m; i++) {
        at = count_up_to(values, n, at, points[i]);
        out[i] = at;
    }
    Py_END_ALLOW_THREADS
    buffers_release(&b);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------------------------------------
 * Columns handed to NumPy: the memory itself, not a copy
 */

typedef struct {
    PyObject_HEAD
    void *data;
    Py_ssize_t size;
} Column;

typedef struct {
    PyTypeObject *column_type, *tokeniser_type;
} State;

static void column_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    free(((Column *)self)->data);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int column_buffer(PyObject *self, Py_buffer *view, int flags) {
    Column *c = (Column *)self;
    return PyBuffer_FillInfo(view, self, c->data, c->size, 0, flags);
}

static PyType_Slot column_slots[] = {
    {Py_tp_dealloc, column_dealloc},
    {Py_bf_getbuffer, column_buffer},
    {0, NULL},
};
static PyType_Spec column_spec = {
    "stallscope.profiler._core.Column", sizeof(Column), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, column_slots,
};

/* ---------------------------------------------------------------------------------------------
 * Tokeniser
 */

typedef struct {
    PyObject_HEAD
    Tokens *tokens;
    PyObject *helper;
    PyThreadState *thread; /* while the GIL is released */
    const char *isa;
    int busy;
} Tokeniser;

/* Calls a method of the helper from inside the parser, which runs without the GIL. The answer's bytes go
 * to `clean`; with `skip`, the answer is a pair (skip, bytes). */
static Status ask(Tokens *t, const char *method, const u8 *p, size_t n, int64_t offset, int final, size_t *skip) {
    Tokeniser *self = t->context;
    Status status = RAISED;
    t->clean.length = 0;
    PyEval_RestoreThread(self->thread);
    PyObject *answer = skip ? PyObject_CallMethod(self->helper, method, "y#Li", (const char *)p, (Py_ssize_t)n,
                                                  (long long)offset, final)
                            : PyObject_CallMethod(self->helper, method, "y#L", (const char *)p, (Py_ssize_t)n,
                                                  (long long)offset);
    if (answer) {
        Py_ssize_t ahead = 0, size = 0;
        char *bytes = NULL;
        int good = skip ? PyArg_ParseTuple(answer, "ny#", &ahead, &bytes, &size) : PyBytes_AsStringAndSize(answer, &bytes, &size) == 0;
        if (good && ahead >= 0) {
            if (skip) *skip = (size_t)ahead;
            status = bytes_set(&t->clean, (const u8 *)bytes, (size_t)size) < 0 ? NO_MEMORY : OK;
        } else if (good) {
            PyErr_SetString(PyExc_ValueError, "negative skip");
        }
        Py_DECREF(answer);
    }
    self->thread = PyEval_SaveThread();
    return status;
}

static Status ask_text(Tokens *t, const u8 *p, size_t n, int64_t offset) {
    return ask(t, "clean_text", p, n, offset, 0, NULL);
}
static Status ask_json(Tokens *t, const u8 *p, size_t n, int64_t offset) {
    return ask(t, "clean_json", p, n, offset, 0, NULL);
}
static Status ask_repair(Tokens *t, const u8 *p, size_t n, int64_t offset, int final, size_t *skip) {
    return ask(t, "repair", p, n, offset, final, skip);
}

static PyObject *tokeniser_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"helper", "seed", "keep", "isa", "text_budget", "window_from", "window_to", NULL};
    PyObject *helper;
    unsigned long long seed = 0;
    int keep = 1;
    const char *isa = "";
    Py_ssize_t budget = (Py_ssize_t)1 << 27;
    long long from = INT64_MIN, to = INT64_MAX;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|KpsnLL", names, &helper, &seed, &keep, &isa, &budget, &from, &to))
        return NULL;
    Tokeniser *self = (Tokeniser *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) return NULL;
    self->tokens = tokens_new(seed);
    if (!self->tokens) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    Tokens *t = self->tokens;
    Py_INCREF(helper);
    self->helper = helper;
    self->isa = tokens_choose(t, isa);
    if (!self->isa) {
        Py_DECREF(self);
        PyErr_Format(PyExc_ValueError, "no parser for %s here", isa);
        return NULL;
    }
    t->keep = keep;
    t->text_budget = budget > 0 ? (size_t)budget : 0;
    t->window_from = from;
    t->window_to = to;
    t->context = self;
    t->clean_text = ask_text;
    t->clean_json = ask_json;
    t->repair = ask_repair;
    const char *point = localeconv()->decimal_point;
    if (point && point[0] && !point[1]) t->decimal_point = point[0];
    return (PyObject *)self;
}

static void tokeniser_dealloc(PyObject *object) {
    Tokeniser *self = (Tokeniser *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->tokens) tokens_free(self->tokens);
    Py_XDECREF(self->helper);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int enter(Tokeniser *self) {
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "the tokeniser is already at work");
        return -1;
    }
    self->busy = 1;
    return 0;
}

static PyObject *raise_for(Status status) {
    if (status == NO_MEMORY) return PyErr_NoMemory();
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "the tokeniser stopped without a reason");
    return NULL;
}

static PyObject *tokeniser_feed(PyObject *object, PyObject *data) {
    Tokeniser *self = (Tokeniser *)object;
    Tokens *t = self->tokens;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return NULL;
    if (enter(self) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    size_t used = 0;
    self->thread = PyEval_SaveThread();
    Status status = tokens_feed(t, view.buf, (size_t)view.len, &used);
    PyEval_RestoreThread(self->thread);
    self->busy = 0;
    PyObject *result = NULL;
    if (status > BAD) {
        raise_for(status);
    } else if (!t->done) {
        result = Py_None;
        Py_INCREF(result);
    } else if (bytes_append(&t->carry, (u8 *)view.buf + used, (size_t)view.len - used) < 0) {
        PyErr_NoMemory();
    } else {
        result = PyBytes_FromStringAndSize((char *)t->carry.data, (Py_ssize_t)t->carry.length);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyObject *tokeniser_finish(PyObject *object, PyObject *unused) {
    (void)unused;
    Tokeniser *self = (Tokeniser *)object;
    Tokens *t = self->tokens;
    if (enter(self) < 0) return NULL;
    self->thread = PyEval_SaveThread();
    Status status = tokens_finish(t);
    PyEval_RestoreThread(self->thread);
    self->busy = 0;
    if (status > BAD) return raise_for(status);
    if (!t->done) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((char *)t->carry.data, (Py_ssize_t)t->carry.length);
}

static PyObject *tokeniser_begin(PyObject *object, PyObject *offset) {
    Tokeniser *self = (Tokeniser *)object;
    long long at = PyLong_AsLongLong(offset);
    if ((at == -1 && PyErr_Occurred()) || enter(self) < 0) return NULL;
    tokens_begin(self->tokens, at);
    self->busy = 0;
    Py_RETURN_NONE;
}

/* A column's memory, given away: (rows, Column), or None where every row holds the default. */
static PyObject *tokeniser_take(PyObject *object, PyObject *number) {
    Tokeniser *self = (Tokeniser *)object;
    Tokens *t = self->tokens;
    long i = PyLong_AsLong(number);
    if (i == -1 && PyErr_Occurred()) return NULL;
    if (i < 0 || i >= COLUMNS) {
        PyErr_SetString(PyExc_IndexError, "no such column");
        return NULL;
    }
    if (self->busy || !t->column[i]) Py_RETURN_NONE;
    State *state = PyModule_GetState(PyType_GetModule(Py_TYPE(object)));
    if (!state) return NULL;
    Column *column = (Column *)((allocfunc)PyType_GetSlot(state->column_type, Py_tp_alloc))(state->column_type, 0);
    if (!column) return NULL;
    size_t size = (i < EVENT_COLUMNS ? t->rows : t->args) * column_size[i];
    void *fitted = realloc(t->column[i], size ? size : 1);
    column->data = fitted ? fitted : t->column[i];
    column->size = (Py_ssize_t)size;
    t->column[i] = NULL;
    return (PyObject *)column;
}

static PyObject *texts_of(const Table *table) {
    PyObject *list = PyList_New(table->count);
    for (int32_t i = 0; list && i < table->count; i++) {
        PyObject *text = PyUnicode_DecodeUTF8((char *)table->text.data + table->start[i],
                                              (Py_ssize_t)(table->start[i + 1] - table->start[i]), "replace");
        if (!text || PyList_SetItem(list, i, text) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *tokeniser_strings(PyObject *object, PyObject *unused) {
    (void)unused;
    return texts_of(&((Tokeniser *)object)->tokens->strings);
}

static PyObject *tokeniser_keys(PyObject *object, PyObject *unused) {
    (void)unused;
    return texts_of(&((Tokeniser *)object)->tokens->keys);
}

static PyObject *tokeniser_take_spill(PyObject *object, PyObject *unused) {
    (void)unused;
    Tokens *t = ((Tokeniser *)object)->tokens;
    PyObject *bytes = PyBytes_FromStringAndSize((char *)t->spill.data, (Py_ssize_t)t->spill.length);
    if (bytes) t->spill.length = 0;
    return bytes;
}

static PyObject *tokeniser_counts(PyObject *object, PyObject *unused) {
    (void)unused;
    Tokeniser *self = (Tokeniser *)object;
    Tokens *t = self->tokens;
    return Py_BuildValue("{s:n,s:n,s:L,s:L,s:L,s:L,s:L,s:L,s:s}", "rows", (Py_ssize_t)t->rows, "args",
                         (Py_ssize_t)t->args, "position", (long long)t->base, "outside", (long long)t->outside,
                         "nonfinite", (long long)t->nonfinite, "nonfinite_at", (long long)t->nonfinite_at,
                         "keys_dropped", (long long)t->keys_dropped, "unmended", (long long)t->unmended, "isa",
                         self->isa);
}

static PyMethodDef tokeniser_methods[] = {
    {"begin", tokeniser_begin, METH_O, "begin(offset): an event list starts there"},
    {"feed", tokeniser_feed, METH_O, "feed(bytes) -> None, or the bytes behind the list's end"},
    {"finish", tokeniser_finish, METH_NOARGS, "finish() -> None if the list has no end, else the bytes behind it"},
    {"take", tokeniser_take, METH_O, "take(i) -> the memory of column i, or None if all is default"},
    {"strings", tokeniser_strings, METH_NOARGS, "strings() -> list of texts by code"},
    {"keys", tokeniser_keys, METH_NOARGS, "keys() -> list of argument names by number"},
    {"take_spill", tokeniser_take_spill, METH_NOARGS, "take_spill() -> texts put aside since the last call"},
    {"counts", tokeniser_counts, METH_NOARGS, "counts() -> dict"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot tokeniser_slots[] = {
    {Py_tp_new, tokeniser_new},
    {Py_tp_dealloc, tokeniser_dealloc},
    {Py_tp_methods, tokeniser_methods},
    {0, NULL},
};
static PyType_Spec tokeniser_spec = {
    "stallscope.profiler._core.Tokeniser", sizeof(Tokeniser), 0, Py_TPFLAGS_DEFAULT, tokeniser_slots,
};

/* ---------------------------------------------------------------------------------------------
 * Module
 */

static PyMethodDef core_methods[] = {
    {"nest", core_nest, METH_VARARGS, "nest(track, start, dur, parent, depth, self, end)"},
    {"union", core_union, METH_VARARGS, "union(start, end, out_start, out_end) -> count, -1 if unsorted"},
    {"intersect", core_intersect, METH_VARARGS, "intersect(as, ae, bs, be, out_start, out_end) -> count"},
    {"covered", core_covered, METH_VARARGS, "covered(set_start, set_end, start, end, out)"},
    {"self_inside", core_self_inside, METH_VARARGS, "self_inside(set_start, set_end, start, end, parent, out)"},
    {"join", core_join, METH_VARARGS, "join(none, left, right, out)"},
    {"count_up_to", core_count_up_to, METH_VARARGS, "count_up_to(values, points, out)"},
    {NULL, NULL, 0, NULL},
};

static int core_exec(PyObject *module) {
    State *state = PyModule_GetState(module);
    state->column_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &column_spec, NULL);
    state->tokeniser_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &tokeniser_spec, NULL);
    if (!state->column_type || !state->tokeniser_type) return -1;
    return PyModule_AddObjectRef(module, "Tokeniser", (PyObject *)state->tokeniser_type);
}

static int core_traverse(PyObject *module, visitproc visit, void *arg) {
    State *state = PyModule_GetState(module);
    Py_VISIT(state->column_type);
    Py_VISIT(state->tokeniser_type);
    return 0;
}

static int core_clear(PyObject *module) {
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->column_type);
    Py_CLEAR(state->tokeniser_type);
    return 0;
}

static PyModuleDef_Slot core_slots[] = {{Py_mod_exec, core_exec}, {0, NULL}};

static PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "Compiled kernels and tokeniser.",
    .m_size = sizeof(State),
    .m_methods = core_methods,
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&core_module); }
