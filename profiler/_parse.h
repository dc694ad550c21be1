/* The event parser. Included once per instruction set by _core.c, see _scan.h for what that defines.
 *
 * Every function takes p, which is before `end`, and returns the place behind what it read, or NULL with
 * t->why telling whether the text goes on in the next chunk (MORE) or is not what it should be (BAD). A
 * value counts as read only if the byte behind it is still before `end`, so that no number is cut in two.
 */
#include "_scan.h"

static const u8 *SCAN(stop)(Tokens *t, const u8 *p, const u8 *end) { return fail(t, p >= end ? MORE : BAD); }

static inline const u8 *SCAN(skip_space)(const u8 *p, const u8 *end) {
    while (p < end && is_space(*p)) p++;
    return p;
}

/* p is at an opening quote. */
static inline const u8 *SCAN(string)(Tokens *t, const u8 *p, const u8 *end, const u8 **text, size_t *n,
                                     int *escaped) {
    *escaped = 0;
    const u8 *close = SCAN(string_end)(p + 1, end, escaped);
    if (UNLIKELY(!close)) return fail(t, MORE);
    *text = p + 1;
    *n = (size_t)(close - p - 1);
    if (UNLIKELY(*n > MAX_TEXT)) return fail(t, BAD);
    return close + 1;
}

/* p is at an opening bracket: behind the one that closes it. Only brackets and strings are looked at. */
static const u8 *SCAN(nested)(Tokens *t, const u8 *p, const u8 *end) {
    uint64_t is_list[(MAX_DEPTH + 64) / 64] = {0};
    int depth = 0;
    for (;;) {
        SCAN(Mask) hit = SCAN(bracket_or_quote)(p);
        if (!hit) {
            p += WIDTH;
            if (p >= end) return SCAN(stop)(t, p, end);
            continue;
        }
        p += SCAN(first)(hit);
        if (p >= end) return SCAN(stop)(t, p, end);
        u8 c = *p;
        if (c == '"') {
            int escaped = 0;
            p = SCAN(string_end)(p + 1, end, &escaped);
            if (!p) return SCAN(stop)(t, end, end);
        } else if (c == '[' || c == '{') {
            if (++depth > MAX_DEPTH) return SCAN(stop)(t, p, end);
            uint64_t bit = (uint64_t)1 << (depth & 63);
            if (c == '[')
                is_list[depth >> 6] |= bit;
            else
                is_list[depth >> 6] &= ~bit;
        } else if (c == ']' || c == '}') {
            int list = (is_list[depth >> 6] >> (depth & 63)) & 1;
            if (list != (c == ']')) return SCAN(stop)(t, p, end);
            if (--depth == 0) return p + 1;
        }
        p++;
        if (p >= end) return SCAN(stop)(t, p, end);
    }
}

/* Reads any value. A number is read only if the byte behind it is there and ends it; words other than true,
 * false and null, such as nan, are for the callback. */
static inline const u8 *SCAN(value)(Tokens *t, const u8 *p, const u8 *end, Value *v) {
    static const char *const words[] = {"false", "true", "null"};
    u8 c = *p;
    const u8 *next = p;
    v->text = p;
    v->escaped = 0;
    if (c == '"') {
        v->kind = STRING;
        return SCAN(string)(t, p, end, &v->text, &v->n, &v->escaped);
    }
    if (is_digit(c) || c == '-') {
        const u8 *digits = p + (c == '-');
        v->integer = 0;
        for (next = digits; next < digits + 17 && is_digit(*next); next++) v->integer = v->integer * 10 + (*next - '0');
        if (c == '-') v->integer = -v->integer;
        v->kind = INTEGER;
        if (UNLIKELY(next == digits || next >= end || !ends_token(*next))) {
            v->kind = NUMBER;
            next = number_shape(p, end, &v->number) ? v->number.end : end - p < 8 ? end : p;
            if (next == p || next >= end || !ends_token(*next)) return SCAN(stop)(t, next, end);
        }
    } else if (c == '{' || c == '[') {
        v->kind = NESTED;
        next = SCAN(nested)(t, p, end);
        if (!next) return NULL;
    } else {
        int w = 0;
        while (w < 3 && memcmp(p, words[w], strlen(words[w])) != 0) w++;
        next = w < 3 ? p + strlen(words[w]) : end - p < 8 ? end : p;
        if (w == 3 || next >= end || !ends_token(*next)) return SCAN(stop)(t, next, end);
        v->kind = WORD;
        v->integer = w == 2 ? -1 : w;
    }
    v->n = (size_t)(next - p);
    return next;
}

static int SCAN(event_key)(const u8 *p, size_t n) {
    static const struct {
        const char *name;
        int at;
    } known[] = {{"ph", AT_PH},   {"cat", AT_CAT}, {"name", AT_NAME}, {"pid", AT_PID}, {"tid", AT_TID},
                 {"ts", AT_TS},   {"dur", AT_DUR}, {"id", AT_ID},     {"id2", AT_ID2}, {"args", AT_ARGS}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == n && memcmp(known[i].name, p, n) == 0) return known[i].at;
    return AT_OTHER;
}

/* The next key, or the end of the object, from behind the last value: up to the first byte of the key's
 * value. Producers write the same bytes there again and again, so the last two are tried first. */
static inline const u8 *SCAN(next_key)(Tokens *t, const u8 *p, const u8 *end, int state, int in_args, int *kind,
                                       int *key) {
    Guess *g = t->guess[state];
    for (int i = 0; i < 2; i++) {
        if (!g[i].length || !SCAN(guessed)(p, &g[i])) continue;
        *kind = g[i].kind;
        *key = g[i].key;
        p += g[i].length;
        if (i == 1) {
            Guess better = g[1];
            g[1] = g[0];
            g[0] = better;
        }
        return p <= end ? p : SCAN(stop)(t, p, end);
    }
    const u8 *start = p;
    int first = state == AT_START || state == AT_ARGS_START, comma = 0;
    p = SCAN(skip_space)(p, end);
    if (p < end && *p == ',' && !first) {
        comma = 1;
        p = SCAN(skip_space)(p + 1, end);
    }
    if (p < end && *p == '}' && !comma) {
        p++;
        *kind = in_args ? END_ARGS : END_EVENT;
        *key = 0;
    } else {
        if (p >= end || *p != '"' || !(comma || first)) return SCAN(stop)(t, p, end);
        const u8 *text;
        size_t n;
        int escaped;
        p = SCAN(string)(t, p, end, &text, &n, &escaped);
        if (!p) return NULL;
        p = SCAN(skip_space)(p, end);
        if (p >= end || *p != ':') return SCAN(stop)(t, p, end);
        p = SCAN(skip_space)(p + 1, end);
        if (p >= end) return SCAN(stop)(t, p, end);
        if (in_args) {
            *kind = KEY_ARG;
            *key = key_number(t, text, n, escaped);
            if (t->why > BAD) return NULL;
            if (*key < 0) return p; /* dropped: nothing to learn */
        } else {
            *kind = KEY_EVENT;
            *key = SCAN(event_key)(text, n);
            if (*key == AT_OTHER && UNLIKELY(escaped || !is_clean_text(text, n))) {
                Status status = t->ask(&(Question){t, text, n, NULL, offset_of(t, p), 0});
                if (status != OK) return fail(t, status);
                *key = SCAN(event_key)(t->clean.data, t->clean.length);
            }
        }
    }
    guess_learn(g, start, (size_t)(p - start), *kind, *key);
    return p;
}

/* p is at the opening brace of an event: stores it and returns the place behind it. */
static const u8 *SCAN(event)(Tokens *t, const u8 *p, const u8 *end) {
    Row row = no_row;
    int state = AT_START, in_args = 0, kind = 0, key = 0;
    int64_t keys_dropped = t->keys_dropped;
    p++;
    for (;;) {
        p = SCAN(next_key)(t, p, end, state, in_args, &kind, &key);
        if (UNLIKELY(!p)) break;
        if (kind == END_EVENT) {
            if (row.id == NO_ID) row.id = row.id2;
            Status status = put_row(t, &row);
            if (LIKELY(status == OK)) return p;
            t->why = status;
            break;
        }
        if (kind == END_ARGS) {
            in_args = 0;
            state = AT_ARGS_END;
            continue;
        }
        if (UNLIKELY(p < end && is_space(*p))) p = SCAN(skip_space)(p, end);
        if (UNLIKELY(p >= end)) {
            t->why = MORE;
            break;
        }
        Value v;
        Status status = OK;
        if (kind == KEY_ARG) {
            state = AT_ARG + (key & (ARG_STATES - 1));
            p = SCAN(value)(t, p, end, &v);
            if (LIKELY(p)) status = put_value(t, key, &v);
        } else if (key == AT_ARGS && *p == '{') {
            drop_args(t); /* a repeated key: the last one counts */
            in_args = 1;
            state = AT_ARGS_START;
            p++;
        } else if (key == AT_PH && p[0] == '"' && p[2] == '"' && p[1] != '\\' && p[1] != '"') {
            state = key;
            row.ph = p[1] < 127 ? p[1] : 127;
            p += 3;
        } else {
            const u8 *quick = key == AT_TS || key == AT_DUR ? plain_ns(p, key == AT_TS ? &row.ts : &row.dur) : NULL;
            state = key;
            if (LIKELY(quick && quick < end && ends_token(*quick))) {
                p = quick;
                continue;
            }
            p = SCAN(value)(t, p, end, &v);
            if (LIKELY(p)) status = put_field(t, &row, key, &v);
        }
        if (UNLIKELY(status != OK)) {
            t->why = status;
            break;
        }
        if (UNLIKELY(!p)) break;
        if (UNLIKELY(p >= end)) {
            t->why = MORE;
            break;
        }
    }
    drop_args(t);
    t->keys_dropped = keys_dropped; /* the event will be read again, or mended */
    return NULL;
}

/* An element that is no event: a row of defaults. */
static const u8 *SCAN(other_element)(Tokens *t, const u8 *p, const u8 *end) {
    Value v;
    const u8 *next = SCAN(value)(t, p, end, &v);
    if (!next) return NULL;
    const u8 *behind = SCAN(skip_space)(next, end);
    if (behind >= end || (*behind != ',' && *behind != ']')) return SCAN(stop)(t, behind, end);
    Status status = put_row(t, &no_row);
    return status == OK ? next : fail(t, status);
}

/* The callback's answer about what stands at p. Asks with a small piece first; the text may be long. */
static const u8 *SCAN(mend)(Tokens *t, const u8 *p, const u8 *end) {
    size_t skip = 0, all = (size_t)(end - p), piece = 1 << 14;
    int last = t->final || all >= MAX_DAMAGE;
    for (;; piece *= 8) {
        if (piece > all) piece = all;
        Status status = t->ask(&(Question){t, p, piece, &skip, offset_of(t, p), last && piece == all});
        if (status != OK) return fail(t, status);
        if (skip > 0 || piece == all) break;
    }
    if (skip == 0) return fail(t, MORE);
    if (skip > all) skip = all;
    if (t->clean.length > 0) {
        if (bytes_set(&t->mended, t->clean.data, t->clean.length) < 0) return fail(t, NO_MEMORY);
        /* offsets of what is found in it point at the damaged event */
        const u8 *text = t->text;
        int64_t base = t->base;
        t->base = offset_of(t, p);
        t->text = t->mended.data;
        t->why = OK;
        const u8 *stop = t->mended.data + t->mended.length + 1; /* a zero byte follows */
        if (!SCAN(event)(t, t->mended.data, stop)) t->unmended++;
        t->text = text;
        t->base = base;
        if (t->why > BAD) return NULL;
    }
    t->why = OK;
    return p + skip;
}

/* A list whose first item is an event: 1 yes, 0 no, -1 the text ends before it tells. */
static int SCAN(wraps_event)(const u8 *p, const u8 *end) {
    while (p < end && (*p == '[' || is_space(*p))) p++;
    if (p < end && *p != '{') return 0;
    if (p < end) p = SCAN(skip_space)(p + 1, end);
    if (p < end && *p != '"') return 0;
    if (end - p < 8) return -1;
    for (size_t n = 2; n <= 4; n++)
        if (p[n + 1] == '"') return SCAN(event_key)(p + 1, n) != AT_OTHER;
    return 0;
}

/* Elements of the event list from `text` on. Returns how many bytes are done with: everything, up to the
 * start of an unfinished element, or up to behind the closing bracket (then t->done is set). */
static size_t SCAN(elements)(Tokens *t, const u8 *text, const u8 *end) {
    const u8 *p = text;
    t->text = text;
    t->why = OK;
    while (p < end) {
        if (*p == ',' || is_space(*p)) {
            p++;
            continue;
        }
        if (*p == ']') {
            t->done = 1;
            return (size_t)(p + 1 - text);
        }
        const u8 *next;
        int stray = *p == '[' ? SCAN(wraps_event)(p, end) : 0;
        if (*p == '{')
            next = SCAN(event)(t, p, end);
        else
            next = stray ? SCAN(stop)(t, stray < 0 ? end : p, end) : SCAN(other_element)(t, p, end);
        if (UNLIKELY(!next)) {
            if (t->why > BAD) break;
            if (t->why == MORE && !t->final && (size_t)(end - p) < MAX_EVENT) break;
            next = SCAN(mend)(t, p, end);
            if (!next) break;
        }
        p = next;
    }
    return (size_t)(p - text);
}

#undef WIDTH
