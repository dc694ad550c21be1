/* The kernels. What each means is written in kernels.py; here is only how.
 *
 * core.py sees to the type of each array; that their lengths fit each other is checked here.
 */
#include "_tokens.h"

#define MAX_ARRAYS 32
#define CLOCK_JITTER_NS 1000

enum { KERNEL_NO_MEMORY = -2, KERNEL_MISMATCH = -3 };

typedef struct {
    void *at[MAX_ARRAYS];
    size_t length[MAX_ARRAYS];
    int count;
} Arrays;

/* Whether arrays from .. to - 1 have this length. */
static int fit(const Arrays *a, int from, int to, size_t length) {
    for (int i = from; i < to; i++)
        if (a->length[i] != length) return 0;
    return 1;
}

/* Differences and sums of absurd times wrap instead of being undefined. */
static inline int64_t difference(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

static inline int64_t total(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static inline int64_t saturating_add(int64_t a, int64_t b) {
    if (b > 0 && a > INT64_MAX - b) return INT64_MAX;
    if (b < 0 && a < INT64_MIN - b) return INT64_MIN;
    return a + b;
}

/* ---------------------------------------------------------------------------------------------
 * Call trees
 */

/* The stack holds the open rows of one track. It has room for all rows, because stacks of a million frames exist; what
 * is not used of it costs nothing. */
ptrdiff_t kernel_nest(const Arrays *a) {
    size_t n = a->length[0], top = 0;
    if (!fit(a, 1, 7, n) || n > INT32_MAX) return KERNEL_MISMATCH;
    const int32_t *track = a->at[0];
    const int64_t *start = a->at[1], *dur = a->at[2];
    int32_t *parent = a->at[3], *depth = a->at[4];
    int64_t *self = a->at[5], *end = a->at[6];
    int32_t *stack = malloc((n + 1) * sizeof *stack);
    if (!stack) return KERNEL_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        int64_t s = start[i], e = saturating_add(s, dur[i]);
        if (i == 0 || track[i] != track[i - 1]) top = 0;
        while (top > 0) {
            int64_t reach = end[stack[top - 1]];
            if (reach > s) {
                int64_t overlap = difference(reach, s);
                /* jitter between neighbours, unless the overlap is long or most of the span */
                if (e <= reach || overlap > CLOCK_JITTER_NS || difference(e, reach) <= overlap) {
                    e = e < reach ? e : reach;
                    break;
                }
            }
            top--;
        }
        int32_t up = top > 0 ? stack[top - 1] : -1;
        parent[i] = up;
        depth[i] = (int32_t)top;
        end[i] = e;
        self[i] = difference(e, s);
        if (up >= 0) self[up] = difference(self[up], self[i]);
        stack[top++] = (int32_t)i;
    }
    free(stack);
    return 0;
}

/* ---------------------------------------------------------------------------------------------
 * Interval sets
 */

/* Spans sorted by start; -1 if they are not. Without a branch on the data: whether two kernels touch is as
 * good as random. */
ptrdiff_t kernel_union(const Arrays *a) {
    size_t n = a->length[0], i = 0, last = 0;
    if (a->length[1] != n || a->length[2] < n || a->length[3] < n) return KERNEL_MISMATCH;
    const int64_t *start = a->at[0], *end = a->at[1];
    int64_t *out_start = a->at[2], *out_end = a->at[3];
    while (i < n && end[i] <= start[i]) i++;
    if (i == n) return 0;
    int64_t reach = end[i];
    int unsorted = 0;
    out_start[0] = start[i];
    for (i++; i < n; i++) { /* last < i: there is room for one more */
        int64_t s = start[i], e = end[i];
        int some = e > s;
        unsorted |= s < start[i - 1];
        out_end[last] = reach;
        out_start[last + 1] = s;
        last += (size_t)(some & (s > reach));
        reach = (some & (e > reach)) ? e : reach;
    }
    out_end[last] = reach;
    return unsorted ? -1 : (ptrdiff_t)last + 1;
}

/* An interval of a set with the covered length before it, side by side for the cache. */
typedef struct {
    int64_t start, end, before;
} Piece;

/* The set between two guards, so that the last piece at or before any time exists. */
static Piece *cover_of(size_t m, const int64_t *start, const int64_t *end) {
    Piece *piece = malloc((m + 2) * sizeof *piece);
    if (!piece) return NULL;
    int64_t before = 0;
    piece[0] = (Piece){INT64_MIN, INT64_MIN, 0};
    for (size_t i = 0; i < m; i++) {
        piece[i + 1] = (Piece){start[i], end[i], before};
        before = total(before, difference(end[i], start[i]));
    }
    piece[m + 1] = (Piece){INT64_MAX, INT64_MAX, before};
    return piece;
}

/* The last piece that starts at or before t, looked for around `near`: questions come nearly sorted. */
static inline size_t last_piece(const Piece *piece, size_t m, size_t near, int64_t t) {
    size_t lo = near, hi = near + 1;
    for (size_t step = 1; lo > 0 && piece[lo].start > t; step *= 2) {
        hi = lo;
        lo = lo > step ? lo - step : 0;
    }
    for (size_t step = 1; hi <= m && piece[hi].start <= t; step *= 2) {
        lo = hi;
        hi = hi + step <= m + 1 ? hi + step : m + 1;
    }
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (piece[mid].start <= t)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static inline int64_t cover_before(const Piece *piece, int64_t t) {
    return total(piece->before, difference(t < piece->end ? t : piece->end, piece->start));
}

/* How much of each span the set covers. With parents, each span's cover is taken from its parent's: what is left is
 * self time in the set. Children stand after their parent and within it, so one pass is enough. */
ptrdiff_t kernel_covered(const Arrays *a) {
    size_t m = a->length[0], n = a->length[2], parents = a->length[4], at = 0;
    if (a->length[1] != m || a->length[3] != n || (parents && parents != n) || a->length[5] != n) return KERNEL_MISMATCH;
    const int32_t *parent = a->at[4];
    int64_t *out = a->at[5];
    const int64_t *start = a->at[2], *end = a->at[3];
    Piece *piece = cover_of(m, a->at[0], a->at[1]);
    if (!piece) return KERNEL_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        int64_t covered = 0, s = start[i], e = end[i];
        if (e > s) {
            at = last_piece(piece, m, at, s);
            if (s >= piece[at].end && e <= piece[at + 1].start) { /* mostly nothing is covered */
                out[i] = 0;
                continue;
            }
            size_t stop = last_piece(piece, m, at, e);
            covered = difference(cover_before(&piece[stop], e), cover_before(&piece[at], s));
        }
        out[i] = covered;
        if (parents && parent[i] >= 0 && (size_t)parent[i] < i)
            out[parent[i]] = difference(out[parent[i]], covered);
    }
    free(piece);
    return 0;
}

/* ---------------------------------------------------------------------------------------------
 * Joins and groups
 */

/* For each right id the first left row with it, or -1, by a plain table of all ids from the least to the greatest.
 * Returns -1 where that would be too large: correlation ids are dense, mixed keys are not. */
ptrdiff_t kernel_join(const Arrays *a) {
    size_t n = a->length[1], m = a->length[2];
    if (a->length[0] != 1 || a->length[3] != m || n >= INT32_MAX) return KERNEL_MISMATCH;
    const int64_t none = *(const int64_t *)a->at[0], *left = a->at[1], *right = a->at[2];
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
        if (left[i] == none) continue;
        if (left[i] < low) low = left[i];
        if (left[i] > high) high = left[i];
    }
    uint64_t range = low <= high ? (uint64_t)high - (uint64_t)low : 0;
    if (range >= 16 * (n + m) + 64) return -1;
    int32_t *out = a->at[3], *behind = calloc((size_t)range + 1, sizeof *behind); /* one more than the first row */
    if (!behind) return KERNEL_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)left[i] - (uint64_t)low;
        if (left[i] != none && !behind[at]) behind[at] = (int32_t)i + 1;
    }
    for (size_t i = 0; i < m; i++) {
        uint64_t at = (uint64_t)right[i] - (uint64_t)low;
        out[i] = right[i] != none && at <= range ? behind[at] - 1 : -1;
    }
    free(behind);
    return 0;
}

/* Rows with equal values in all columns get one number, in order of first appearance. Neighbours mostly belong
 * together, so the row before is asked first. */
ptrdiff_t kernel_group(const Arrays *a) {
    int keys = a->count - 2;
    size_t n = a->length[0], size = (size_t)keys * sizeof(int64_t);
    if (keys < 1 || !fit(a, 0, keys, n) || a->length[keys] != n || a->length[keys + 1] < n || n > MAX_TEXTS) return KERNEL_MISMATCH;
    int32_t *code = a->at[keys], *first = a->at[keys + 1];
    int64_t row[MAX_ARRAYS] = {0};
    Table rows = {0};
    for (size_t i = 0; i < n; i++) {
        int same = i > 0;
        for (int c = 0; c < keys; c++) {
            int64_t value = ((const int64_t *)a->at[c])[i];
            same &= value == row[c];
            row[c] = value;
        }
        uint32_t at = 0, hash = same ? 0 : text_hash((const u8 *)row, size, 0);
        code[i] = same ? code[i - 1] : table_find(&rows, (const u8 *)row, size, hash, &at);
        if (code[i] >= 0) continue;
        first[rows.count] = (int32_t)i;
        code[i] = table_add(&rows, (const u8 *)row, size, hash, at);
        if (code[i] < 0) break;
    }
    int whole = n == 0 || code[n - 1] >= 0;
    ptrdiff_t count = rows.count;
    table_free(&rows);
    return whole ? count : KERNEL_NO_MEMORY;
}

/* ---------------------------------------------------------------------------------------------
 * Walks over call trees
 */

enum { UNKNOWN = -3, OPEN = -2 };

/* For every row itself or the nearest ancestor inside of the mask. Parents mostly stand before their children, so one
 * step is enough; a longer way is walked once and remembered. `above` may lead in a circle where a file says so. */
ptrdiff_t kernel_inherit(const Arrays *a) {
    size_t n = a->length[0];
    if (!fit(a, 1, 3, n) || n > INT32_MAX) return KERNEL_MISMATCH;
    const int32_t *above = a->at[0];
    const uint8_t *mask = a->at[1];
    int32_t *out = a->at[2];
    int later = 0; /* whether any parent stands behind its child */
    for (size_t i = 0; i < n; i++) {
        if (above[i] < -1 || above[i] >= (int64_t)n) return KERNEL_MISMATCH;
        int32_t found = above[i] < 0 ? -1 : (size_t)above[i] < i ? out[above[i]] : UNKNOWN;
        out[i] = mask[i] ? (int32_t)i : found; /* looked up in any case: the mask cannot be guessed */
        later |= found == UNKNOWN;
    }
    for (size_t i = 0; later && i < n; i++) {
        int32_t at = (int32_t)i;
        for (; out[at] == UNKNOWN; at = above[at]) out[at] = OPEN;
        if (out[at] == OPEN) return KERNEL_MISMATCH;
        int32_t found = out[at];
        for (at = (int32_t)i; out[at] == OPEN; at = above[at]) out[at] = found;
    }
    return 0;
}

typedef struct {
    int64_t at; /* up to where time has an owner */
    size_t count, room;
    int64_t *edge; /* where each piece begins, and where the last one ends */
    int32_t *row;
} Pieces;

static inline int own(Pieces *p, int64_t row, int64_t until) {
    if (until <= p->at) return 1;
    if (p->count == p->room) return 0;
    p->edge[p->count] = p->at;
    p->row[p->count++] = (int32_t)row;
    p->edge[p->count] = p->at = until;
    return 1;
}

/* Which of the chosen rows of a track is the innermost at any time, -1 for none between them. The rows stand in
 * timeline order, so the ancestors of a row are on the stack or not chosen, and whatever stands above them there is
 * over. */
ptrdiff_t kernel_flatten(const Arrays *a) {
    size_t k = a->length[0], n = a->length[1], top = 0;
    if (!fit(a, 2, 4, n) || a->length[4] != a->length[5] + 1 || n > INT32_MAX) return KERNEL_MISMATCH;
    const int64_t *start = a->at[2], *dur = a->at[3];
    const int32_t *rows = a->at[0], *parent = a->at[1];
    Pieces out = {.at = INT64_MIN, .room = a->length[5], .edge = a->at[4], .row = a->at[5]};
    int64_t *stack = malloc((2 * k + 1) * sizeof *stack), *end = stack + k; /* rows, and their clipped ends */
    if (!stack) return KERNEL_NO_MEMORY;
    int good = 1;
    for (size_t i = 0; i < k && good; i++) {
        int64_t row = rows[i];
        good = row >= 0 && (size_t)row < n;
        if (!good || dur[row] <= 0) continue;
        int64_t up = parent[row], s = start[row], e = saturating_add(s, dur[row]);
        while (top > 0 && up != stack[top - 1]) {
            if (up > stack[top - 1] && (size_t)up < n && parent[up] < up) {
                up = parent[up]; /* not chosen: its own parent may be */
                continue;
            }
            good &= own(&out, stack[top - 1], end[top - 1] < s ? end[top - 1] : s);
            top--;
        }
        if (top > 0) {
            good &= own(&out, stack[top - 1], end[top - 1] < s ? end[top - 1] : s);
            e = e < end[top - 1] ? e : end[top - 1];
        }
        if (out.count) good &= own(&out, -1, s);
        if (out.at < s) out.at = s;
        stack[top] = row;
        end[top++] = e;
    }
    while (top > 0 && good) {
        good &= own(&out, stack[top - 1], end[top - 1]);
        top--;
    }
    free(stack);
    return good ? (ptrdiff_t)out.count : KERNEL_MISMATCH;
}

/* Windows cut at the ends of segments; both stand in order and are disjoint. Time without a segment has row -1. What
 * follows a piece whose row has the same label (-1 is like no other) is of that piece, whose row is that of its longest
 * segment, and `most` how long that is. */
ptrdiff_t kernel_cut(const Arrays *a) {
    size_t m = a->length[0], labels = a->length[3], n = a->length[4], room = a->length[6], s = 0, count = 0;
    if (!fit(a, 1, 3, m) || a->length[5] != n || !fit(a, 7, 11, room) || n > INT32_MAX) return KERNEL_MISMATCH;
    const int64_t *seg_start = a->at[0], *seg_end = a->at[1], *start = a->at[4], *end = a->at[5];
    const int32_t *seg_row = a->at[2], *label = a->at[3];
    int64_t *begin = a->at[6], *until = a->at[7], *most = a->at[10];
    int32_t *row = a->at[8], *window = a->at[9];
    for (size_t i = 0; i < n; i++) {
        int64_t at = start[i], longest = 0;
        int32_t last = -1;
        while (s < m && seg_end[s] <= at) s++;
        for (size_t j = s; at < end[i];) {
            int inside = j < m && seg_start[j] <= at;
            int64_t from = at, stop = j == m ? end[i] : inside ? seg_end[j] : seg_start[j];
            at = stop < end[i] ? stop : end[i];
            int32_t own = inside ? seg_row[j] : -1, mine = own >= 0 && (size_t)own < labels ? label[own] : -1;
            int joins = mine >= 0 && mine == last, longer = !joins || difference(at, from) > longest;
            count += (size_t)!joins;
            if (longer) longest = difference(at, from);
            if (count <= room) {
                if (!joins) begin[count - 1] = from;
                if (!joins) window[count - 1] = (int32_t)i;
                if (longer) row[count - 1] = own;
                until[count - 1] = at;
                most[count - 1] = longest;
            }
            last = mine;
            s = j;
            j += (size_t)inside;
        }
    }
    return count > room ? KERNEL_MISMATCH : (ptrdiff_t)count;
}

/* ---------------------------------------------------------------------------------------------
 * Order and arguments
 */

/* Whether row a stands behind row b: it starts later, or together with a longer one. */
static inline int after(const int64_t *start, const int64_t *dur, int32_t a, int32_t b) {
    return start[a] > start[b] || (start[a] == start[b] && dur[a] < dur[b]);
}

/* Sorts the rows of a track. Files hold a few sorted stretches: found as they are, and merged in pairs. `from` and
 * `spare` are as large as `row`, and one more. */
static void sort_rows(const int64_t *start, const int64_t *dur, int32_t *row, size_t n, int32_t *from, int32_t *spare) {
    size_t runs = 0;
    from[0] = 0;
    for (size_t i = 1; i < n; i++)
        if (after(start, dur, row[i - 1], row[i])) from[++runs] = (int32_t)i;
    from[++runs] = (int32_t)n;
    for (; runs > 1; runs = (runs + 1) / 2) {
        for (size_t r = 0; r + 1 < runs; r += 2) {
            int32_t lo = from[r], mid = from[r + 1], hi = from[r + 2], left = mid - lo, i = 0;
            if (!after(start, dur, row[mid - 1], row[mid])) continue; /* stretches that were merged mostly follow each other */
            memcpy(spare, row + lo, (size_t)left * sizeof *spare);
            while (i < left) row[lo++] = mid < hi && after(start, dur, spare[i], row[mid]) ? row[mid++] : spare[i++];
        }
        for (size_t r = 0; r <= runs / 2; r++) from[r] = from[2 * r];
        from[(runs + 1) / 2] = (int32_t)n;
    }
}

/* Rows by track, then start, then the longer first, else as they stand; those with track -1 are left out. Tracks are
 * numbered from 0. Returns how many rows there are. */
ptrdiff_t kernel_order(const Arrays *a) {
    size_t n = a->length[0], tracks = 0;
    if (!fit(a, 1, 4, n) || n >= INT32_MAX) return KERNEL_MISMATCH;
    const int32_t *track = a->at[0];
    const int64_t *start = a->at[1], *dur = a->at[2];
    int32_t *out = a->at[3];
    for (size_t i = 0; i < n; i++)
        if (track[i] >= 0 && (size_t)track[i] >= tracks) tracks = (size_t)track[i] + 1;
    struct {
        size_t begin, end;
        int unsorted;
    } *lane = calloc(tracks + 1, sizeof *lane);
    if (!lane) return KERNEL_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        if (track[i] >= 0) lane[track[i] + 1].begin++;
    for (size_t t = 0; t < tracks; t++) {
        lane[t].end = lane[t].begin;
        lane[t + 1].begin += lane[t].begin;
    }
    for (size_t i = 0; i < n; i++) {
        if (track[i] < 0) continue;
        size_t t = (size_t)track[i], at = lane[t].end++;
        out[at] = (int32_t)i;
        lane[t].unsorted |= at > lane[t].begin && after(start, dur, out[at - 1], (int32_t)i);
    }
    size_t count = lane[tracks].begin;
    int32_t *scratch = malloc((2 * count + 2) * sizeof *scratch);
    for (size_t t = 0; t < tracks && scratch; t++)
        if (lane[t].unsorted)
            sort_rows(start, dur, out + lane[t].begin, lane[t].end - lane[t].begin, scratch, scratch + count + 1);
    int whole = scratch != NULL;
    free(scratch);
    free(lane);
    return whole ? (ptrdiff_t)count : KERNEL_NO_MEMORY;
}

/* The items of a table that some codes stand for, -1 for the last one. Each code is read before its item is written, so
 * that `out` may be the codes. */
#define TAKE(name, type)                                                        \
    ptrdiff_t kernel_##name(const Arrays *a) {                                  \
        size_t m = a->length[0], n = a->length[1];                              \
        const type *table = a->at[0];                                           \
        const int32_t *code = a->at[1];                                         \
        type *out = a->at[2];                                                   \
        if (a->length[2] != n) return KERNEL_MISMATCH;                          \
        for (size_t i = 0; i < n; i++) {                                        \
            size_t at = code[i] == -1 ? m - 1 : (size_t)(uint32_t)code[i];      \
            if (at >= m) return KERNEL_MISMATCH;                                \
            out[i] = table[at];                                                 \
        }                                                                       \
        return 0;                                                               \
    }
TAKE(take_bytes, uint8_t)
TAKE(take_ints, int32_t)
TAKE(take_longs, int64_t)

enum { WIDE_INT = 7 }; /* the tag of an integer that stands in `wide` */

/* The integer that each asked event has under a key, or `missing`; of several the last. Returns how many of the values
 * found are no integers; those are not given. */
ptrdiff_t kernel_pick(const Arrays *a) {
    size_t n = a->length[1], m = a->length[2], w = a->length[5], k = a->length[6];
    if (a->length[0] != 2 || n == 0 || !fit(a, 2, 5, m) || a->length[7] != k) return KERNEL_MISMATCH;
    const int64_t *params = a->at[0], key = params[0], missing = params[1], *wide = a->at[5];
    const int32_t *first = a->at[1], *value = a->at[4], *asked = a->at[6];
    const uint16_t *keys = a->at[2];
    const uint8_t *tag = a->at[3];
    int64_t *out = a->at[7];
    ptrdiff_t odd = 0;
    for (size_t i = 0; i < k; i++) {
        int64_t found = missing;
        size_t at = (size_t)(asked[i] < 0 ? -1 : asked[i]);
        if (at < n - 1 && first[at] >= 0) {
            for (size_t j = (size_t)first[at]; (int64_t)j < first[at + 1] && j < m; j++) {
                if (keys[j] != key) continue;
                int far = tag[j] == WIDE_INT && (uint32_t)value[j] < w;
                odd += !(tag[j] == 0 || far);
                found = tag[j] == 0 ? value[j] : far ? wide[value[j]] : missing;
            }
        }
        out[i] = found;
    }
    return odd;
}

/* ---------------------------------------------------------------------------------------------
 * Replaying a recording on a model of threads, queues and streams (analyzers/replay.py)
 */

/* The columns in the order in which they come; see kernels.replay. */
enum { ORDER, PREV_CALL, HOST, OWN, WAITS, ON_START, WAIT_LAG, FOLLOWS, IS_MAIN, CALL_AT, CALL_TO, ASKS, ASK_LAG,
       DRAINS, DRAIN_LAG, AHEAD, OP_CALL, PREV_OP, OTHER_OP, STREAM_LAG, LAUNCH_LAG, OTHER_LAG, OP_AT, OP_DUR,
       STARTS, ENDS, OP_STARTS, OP_ENDS, REPLAY_ARRAYS };

/* Whether all of a column are -1 or rows of a table. */
static int indices(const int64_t *column, size_t n, size_t rows) {
    for (size_t i = 0; i < n; i++)
        if (column[i] < -1 || column[i] >= (int64_t)rows) return 0;
    return 1;
}

static inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

static int replay_fits(const Arrays *a, const int64_t **c) {
    size_t n = a->length[PREV_CALL], m = a->length[OP_CALL];
    if (!fit(a, PREV_CALL, OP_CALL, n) || !fit(a, OP_CALL, STARTS, m) || !fit(a, STARTS, OP_STARTS, n) ||
        !fit(a, OP_STARTS, REPLAY_ARRAYS, m) || a->length[ORDER] != 2 * n + m)
        return 0;
    for (size_t i = 0; i < a->length[ORDER]; i++) {
        int64_t code = c[ORDER][i];
        if (code < 0 || (size_t)code / 3 >= (code % 3 == 2 ? m : n)) return 0;
    }
    return indices(c[PREV_CALL], n, n) && indices(c[ASKS], n, n) && indices(c[DRAINS], n, n) &&
           indices(c[WAITS], n, m) && indices(c[AHEAD], n, m) && indices(c[OP_CALL], m, n) &&
           indices(c[PREV_OP], m, m) && indices(c[OTHER_OP], m, m);
}

static inline int64_t call_begins(const int64_t **c, int64_t i, int64_t warp) {
    const int64_t *starts = c[STARTS], *ends = c[ENDS];
    int64_t before = c[PREV_CALL][i], begin = c[CALL_AT][i];
    if (c[FOLLOWS][i]) {
        begin = total(begin, warp);
        if (before >= 0) begin = later(begin, ends[before]);
    } else if (before >= 0) {
        begin = total(ends[before], c[HOST][i]);
    }
    if (c[ASKS][i] >= 0) {
        int64_t asked = total(starts[c[ASKS][i]], c[ASK_LAG][i]);
        begin = before >= 0 ? later(begin, asked) : asked;
    }
    if (c[DRAINS][i] >= 0) begin = later(begin, total(ends[c[DRAINS][i]], c[DRAIN_LAG][i]));
    if (c[AHEAD][i] >= 0) begin = later(begin, c[OP_STARTS][c[AHEAD][i]]);
    return begin;
}

static inline int64_t op_begins(const int64_t **c, int64_t i) {
    int64_t call = c[OP_CALL][i], before = c[PREV_OP][i], other = c[OTHER_OP][i];
    if (call < 0 && before < 0 && other < 0) return c[OP_AT][i];
    int64_t begin = -(INT64_C(1) << 62);
    if (call >= 0) begin = total(c[STARTS][call], c[LAUNCH_LAG][i]);
    if (before >= 0) begin = later(begin, total(c[OP_ENDS][before], c[STREAM_LAG][i]));
    if (other >= 0) begin = later(begin, total(c[OP_ENDS][other], c[OTHER_LAG][i]));
    return begin;
}

ptrdiff_t kernel_replay(const Arrays *a) {
    const int64_t *c[MAX_ARRAYS];
    for (int i = 0; i < a->count; i++) c[i] = a->at[i];
    if (a->count != REPLAY_ARRAYS || !replay_fits(a, c)) return KERNEL_MISMATCH;
    int64_t *starts = a->at[STARTS], *ends = a->at[ENDS], *op_starts = a->at[OP_STARTS], *op_ends = a->at[OP_ENDS], warp = 0;
    for (size_t k = 0; k < a->length[ORDER]; k++) {
        int64_t i = c[ORDER][k] / 3, kind = c[ORDER][k] % 3;
        if (kind == 1) {
            starts[i] = call_begins(c, i, warp);
            if (c[IS_MAIN][i]) warp = difference(starts[i], c[CALL_AT][i]);
        } else if (kind == 0) {
            int64_t op = c[WAITS][i];
            ends[i] = total(starts[i], c[OWN][i]);
            if (op >= 0) ends[i] = later(ends[i], total((c[ON_START][i] ? op_starts : op_ends)[op], c[WAIT_LAG][i]));
            if (c[IS_MAIN][i]) warp = difference(ends[i], c[CALL_TO][i]);
        } else {
            op_starts[i] = op_begins(c, i);
            op_ends[i] = total(op_starts[i], c[OP_DUR][i]);
        }
    }
    return 0;
}
