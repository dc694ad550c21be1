/* The compiled core of stallscope.profiler: kernels over columns, and the trace-event tokeniser.
 *
 * Everything here has a Python twin with the same results (kernels_py.py, readers/event_fallback.py),
 * which the tests compare it with and which runs where no compiler was there. Inputs are untrusted:
 * every length is checked, every allocation can fail cleanly, nothing recurses.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <locale.h>

#include "_kernels.h"
#include "_tokeniser.h"

/* ---------------------------------------------------------------------------------------------
 * Kernels: each takes NumPy arrays, of which the last ones are written to, and returns a count
 */

static size_t item_size(char kind) { return kind == 'q' ? 8 : kind == 'i' ? 4 : kind == 'h' ? 2 : 1; }

static int take_arrays(Arrays *a, Py_buffer *view, PyObject *args, const char *items, int writable) {
    Py_ssize_t n = PyTuple_Size(args), fixed = (Py_ssize_t)strlen(items);
    if (n < fixed || n > MAX_ARRAYS) {
        PyErr_SetString(PyExc_TypeError, "wrong number of arrays");
        return -1;
    }
    for (a->count = 0; a->count < n; a->count++) {
        int i = a->count, flags = PyBUF_SIMPLE | (i >= n - writable ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(PyTuple_GetItem(args, i), &view[i], flags) < 0) return -1;
        /* the first kind repeats where there are more arrays than kinds */
        size_t size = item_size(items[i < n - fixed ? 0 : i - (n - fixed)]);
        a->at[i] = view[i].buf;
        a->length[i] = (size_t)view[i].len / size;
        if ((size_t)view[i].len % size || (uintptr_t)view[i].buf % size) {
            a->count++;
            PyErr_Format(PyExc_ValueError, "array %d does not hold aligned items of %d bytes", i, (int)size);
            return -1;
        }
    }
    return 0;
}

static PyObject *run_kernel(PyObject *args, const char *items, int writable, Kernel kernel) {
    Arrays a = {.count = 0};
    Py_buffer view[MAX_ARRAYS];
    ptrdiff_t result = 0;
    int taken = take_arrays(&a, view, args, items, writable) == 0;
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        result = kernel(&a);
        Py_END_ALLOW_THREADS
    }
    while (a.count > 0) PyBuffer_Release(&view[--a.count]);
    if (!taken) return NULL;
    if (result == KERNEL_NO_MEMORY) return PyErr_NoMemory();
    if (result == KERNEL_MISMATCH) PyErr_SetString(PyExc_ValueError, "arrays of different lengths");
    return result == KERNEL_MISMATCH ? NULL : PyLong_FromSsize_t(result);
}

#define KERNEL(name, items, writable)                                 \
    static PyObject *core_##name(PyObject *module, PyObject *args) {  \
        (void)module;                                                 \
        return run_kernel(args, items, writable, kernel_##name);      \
    }
KERNEL(nest, "iqqiiqq", 4)
KERNEL(union, "qqqq", 2)
KERNEL(covered, "qqqqiq", 1)
KERNEL(join, "qqqi", 1)
KERNEL(group, "qii", 2)
KERNEL(inherit, "ibi", 1)
KERNEL(cut, "qqiiqqqqiiq", 5)
KERNEL(flatten, "iiqqqi", 2)
KERNEL(order, "iqqi", 1)
KERNEL(take_bytes, "bib", 1)
KERNEL(take_ints, "iii", 1)
KERNEL(take_longs, "qiq", 1)
KERNEL(pick, "qihbiqiq", 1)
KERNEL(replay, "q", 4)

/* ---------------------------------------------------------------------------------------------
 * Columns handed to NumPy: the memory itself, not a copy
 */

typedef struct {
    PyObject_HEAD
    void *data;
    Py_ssize_t size;
} Column;

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
static Status ask_repair(Tokens *t, const u8 *p, size_t n, int64_t offset, int final, size_t *skip) {
    return ask(t, "repair", p, n, offset, final, skip);
}

static PyObject *tokeniser_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"helper", "seed", "keep", "isa", "text_budget", NULL};
    PyObject *helper;
    unsigned long long seed = 0;
    int keep = 1;
    const char *isa = "";
    Py_ssize_t budget = (Py_ssize_t)1 << 27;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|Kpsn", names, &helper, &seed, &keep, &isa, &budget)) return NULL;
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
    t->context = self;
    t->clean_text = ask_text;
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

/* feed(bytes), and feed(None) at the end of the input. */
static PyObject *tokeniser_feed(PyObject *object, PyObject *data) {
    Tokeniser *self = (Tokeniser *)object;
    Tokens *t = self->tokens;
    Py_buffer view = {.len = 0};
    int final = data == Py_None;
    if (!final && PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *result = NULL;
    if (enter(self) == 0) {
        size_t used = 0;
        self->thread = PyEval_SaveThread();
        Status status = final ? tokens_finish(t) : tokens_feed(t, view.buf, (size_t)view.len, &used);
        if (status <= BAD && t->done && !final &&
            bytes_append(&t->carry, (u8 *)view.buf + used, (size_t)view.len - used) < 0)
            status = NO_MEMORY;
        PyEval_RestoreThread(self->thread);
        self->busy = 0;
        if (status == NO_MEMORY)
            PyErr_NoMemory();
        else if (status <= BAD && t->done)
            result = PyBytes_FromStringAndSize((char *)t->carry.data, (Py_ssize_t)t->carry.length);
        else if (status <= BAD)
            Py_INCREF(result = Py_None);
    }
    if (!final) PyBuffer_Release(&view);
    return result;
}

static PyObject *tokeniser_begin(PyObject *object, PyObject *offset) {
    Tokeniser *self = (Tokeniser *)object;
    long long at = PyLong_AsLongLong(offset);
    if ((at == -1 && PyErr_Occurred()) || enter(self) < 0) return NULL;
    tokens_begin(self->tokens, at);
    self->busy = 0;
    Py_RETURN_NONE;
}

/* The columns, given away: for each its memory, or None where every row holds the default. Rows and arguments are
 * counted anew then; texts stay. */
static PyObject *tokeniser_take(PyObject *object, PyObject *unused) {
    (void)unused;
    Tokeniser *self = (Tokeniser *)object;
    Tokens *t = self->tokens;
    if (enter(self) < 0) return NULL;
    self->busy = 0;
    PyObject *module = PyType_GetModule(Py_TYPE(object)), *list = PyList_New(COLUMNS);
    PyTypeObject *type = module ? (PyTypeObject *)PyObject_GetAttrString(module, "Column") : NULL;
    /* where the last event's arguments end is told too */
    if (t->column[COL_ARGS_FROM]) ((int32_t *)t->column[COL_ARGS_FROM])[t->rows] = (int32_t)t->args;
    for (int i = 0; i < COLUMNS && type && list; i++) {
        PyObject *item = t->column[i] ? ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0) : Py_None;
        if (item && item != Py_None) {
            size_t count = i < EVENT_COLUMNS ? t->rows + (i == COL_ARGS_FROM) : i < COL_WIDE ? t->args : t->wide;
            size_t size = count * column_size[i];
            void *fitted = realloc(t->column[i], size ? size : 1);
            ((Column *)item)->data = fitted ? fitted : t->column[i];
            ((Column *)item)->size = (Py_ssize_t)size;
            t->column[i] = NULL;
        } else {
            Py_XINCREF(item);
        }
        if (!item || PyList_SetItem(list, i, item) < 0) Py_CLEAR(list);
    }
    Py_XDECREF((PyObject *)type);
    t->rows = t->row_room = t->args = t->arg_room = t->wide = t->wide_room = t->args_from = t->wide_from = 0;
    return list;
}

/* texts(0, n) the strings by code, texts(1, n) the argument names by number, those behind the first n. */
static PyObject *tokeniser_texts(PyObject *object, PyObject *args) {
    Tokens *t = ((Tokeniser *)object)->tokens;
    int keys, first;
    if (!PyArg_ParseTuple(args, "pi", &keys, &first)) return NULL;
    const Table *table = keys ? &t->keys : &t->strings;
    if (first < 0 || first > table->count) first = table->count;
    PyObject *list = PyList_New(table->count - first);
    for (int32_t i = first; list && i < table->count; i++) {
        const Text *text = text_of(table, i);
        const char *p = (char *)table->bytes.data + text->start;
        PyObject *item = PyUnicode_DecodeUTF8(p, (Py_ssize_t)text->n, "surrogateescape");
        if (!item || PyList_SetItem(list, i - first, item) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* threads(n): the pid and tid of each thread behind the first n, 8 bytes each. */
static PyObject *tokeniser_threads(PyObject *object, PyObject *first) {
    const Table *table = &((Tokeniser *)object)->tokens->threads;
    Py_ssize_t from = PyLong_AsSsize_t(first) * 16, size = (Py_ssize_t)table->bytes.length;
    if (PyErr_Occurred()) return NULL;
    if (from < 0 || from > size) from = size;
    return PyBytes_FromStringAndSize((char *)table->bytes.data + from, size - from);
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
    return Py_BuildValue("{s:n,s:n,s:n,s:L,s:L,s:L,s:s}", "rows", (Py_ssize_t)t->rows, "args", (Py_ssize_t)t->args,
                         "wide", (Py_ssize_t)t->wide, "position", (long long)t->base, "keys_dropped",
                         (long long)t->keys_dropped, "unmended", (long long)t->unmended, "isa", self->isa);
}

static PyMethodDef tokeniser_methods[] = {
    {"begin", tokeniser_begin, METH_O, "begin(offset): an event list starts there"},
    {"feed", tokeniser_feed, METH_O, "feed(bytes, or None at the end) -> None, or the bytes behind the list"},
    {"take", tokeniser_take, METH_NOARGS, "take() -> the memory of each column, or None if all is default"},
    {"texts", tokeniser_texts, METH_VARARGS, "texts(keys, n) -> texts by code, or argument names by number, behind the first n"},
    {"threads", tokeniser_threads, METH_O, "threads(n) -> pid and tid of the threads behind the first n, as bytes"},
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
    {"covered", core_covered, METH_VARARGS, "covered(set_start, set_end, start, end, parent or nothing, out)"},
    {"join", core_join, METH_VARARGS, "join(none, left, right, out)"},
    {"group", core_group, METH_VARARGS, "group(column, ..., code, first) -> count"},
    {"inherit", core_inherit, METH_VARARGS, "inherit(above, mask, out)"},
    {"cut", core_cut, METH_VARARGS, "cut(seg_start, seg_end, seg_row, label, start, end, begin, until, row, window, most) -> count"},
    {"flatten", core_flatten, METH_VARARGS, "flatten(row, parent, start, dur, edge, out_row) -> count"},
    {"order", core_order, METH_VARARGS, "order(track, start, dur, out)"},
    {"replay", core_replay, METH_VARARGS, "replay(order, 15 call columns, 8 op columns, 4 columns out)"},
    {"take_bytes", core_take_bytes, METH_VARARGS, "take_bytes(table, code, out), of items of 1 byte"},
    {"take_ints", core_take_ints, METH_VARARGS, "take_ints(table, code, out), of 4 bytes"},
    {"take_longs", core_take_longs, METH_VARARGS, "take_longs(table, code, out), of 8 bytes"},
    {"pick", core_pick, METH_VARARGS, "pick((key, missing), first, key, tag, value, wide, asked, out) -> hits that are no integers"},
    {NULL, NULL, 0, NULL},
};

static int core_exec(PyObject *module) {
    PyType_Spec *specs[] = {&column_spec, &tokeniser_spec};
    for (int i = 0; i < 2; i++) {
        PyObject *type = PyType_FromModuleAndSpec(module, specs[i], NULL);
        int failed = !type || PyModule_AddType(module, (PyTypeObject *)type) < 0;
        Py_XDECREF(type);
        if (failed) return -1;
    }
    return 0;
}

static PyModuleDef_Slot core_slots[] = {{Py_mod_exec, core_exec}, {0, NULL}};

static PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT, .m_name = "_core", .m_doc = "Compiled kernels and tokeniser.",
    .m_methods = core_methods, .m_slots = core_slots,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&core_module); }
