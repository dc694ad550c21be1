/* The event parser. Included once per instruction set by _core.c, see _scan.h for what that defines.
 *
 * Every function takes p, which is before `end`, and returns the place behind what it read, or NULL with
 * t->why telling whether the text goes on in the next chunk (MORE) or is not what it should be (BAD). A
 * value counts as read only if the byte behind it is still before `end`, so that no number is cut in two.
 */
#include "_scan.h"

static const u8 *SCAN(stop)(Tokens *t, const u8 *p, const u8 *end) {
    t->why = p >= end ? MORE : BAD;
    return NULL;
}

static inline const u8 *SCAN(skip_space)(const u8 *p, const u8 *end) {
    while (p < end && is_space(*p)) p++;
    return p;
}

/* p is at an opening quote. */
static inline const u8 *SCAN(string)(Tokens *t, const u8 *p, const u8 *end, const u8 **text, size_t *n,
                                     int *escaped) {
    *escaped = 0;
    const u8 *close = SCAN(string_end)(p + 1, end, escaped);
    if (UNLIKELY(!close)) {
        t->why = MORE;
        return NULL;
    }
    *text = p + 1;
    *n = (size_t)(close - p - 1);
    if (UNLIKELY(*n > MAX_TEXT)) {
        t->why = BAD;
        return NULL;
    }
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

/* true, false or null: *value becomes 1, 0 or -1. Anything else bare, such as nan, is for the callback. */
static const u8 *SCAN(word)(Tokens *t, const u8 *p, const u8 *end, int64_t *value) {
    static const char *const words[] = {"false", "true", "null"};
    for (int w = 0; w < 3; w++) {
        size_t n = strlen(words[w]);
        if (memcmp(p, words[w], n) != 0) continue;
        p += n;
        if (p >= end || !ends_token(*p)) return SCAN(stop)(t, p, end);
        *value = w == 2 ? -1 : w;
        return p;
    }
    return SCAN(stop)(t, end - p < 8 ? end : p, end); /* it may be a word the chunk cuts */
}

static const u8 *SCAN(number)(Tokens *t, const u8 *p, const u8 *end, Number *out) {
    if (!number_shape(p, end, out)) return SCAN(stop)(t, end - p < 8 ? end : p, end);
    if (out->end >= end || !ends_token(*out->end)) return SCAN(stop)(t, out->end, end);
    return out->end;
}

/* Any value, forgotten. */
static const u8 *SCAN(skip_value)(Tokens *t, const u8 *p, const u8 *end) {
    const u8 *text;
    size_t n;
    int escaped;
    int64_t value;
    Number number;
    if (*p == '"') return SCAN(string)(t, p, end, &text, &n, &escaped);
    if (*p == '{' || *p == '[') return SCAN(nested)(t, p, end);
    if (is_digit(*p) || *p == '-') return SCAN(number)(t, p, end, &number);
    return SCAN(word)(t, p, end, &value);
}

/* ts and dur: a number, a number in quotes, or nothing usable. */
static inline const u8 *SCAN(time)(Tokens *t, const u8 *p, const u8 *end, int64_t *out) {
    const u8 *next = NULL;
    if (LIKELY(is_digit(*p) || *p == '-')) next = plain_ns(p, out);
    if (LIKELY(next && next < end && ends_token(*next))) return next;
    *out = NO_TIME;
    Number number;
    if (is_digit(*p) || *p == '-') {
        next = SCAN(number)(t, p, end, &number);
        if (next) *out = number_ns(&number);
        return next;
    }
    if (*p != '"') return SCAN(skip_value)(t, p, end);
    const u8 *text;
    size_t n;
    int escaped;
    next = SCAN(string)(t, p, end, &text, &n, &escaped);
    if (!next) return NULL;
    while (n && is_space(*text)) text++, n--;
    while (n && is_space(text[n - 1])) n--;
    const u8 *stop = text + n;
    if (n && *text == '+') text++;
    if (text < stop && number_shape(text, stop, &number) && number.end == stop) *out = number_ns(&number);
    return next;
}

/* pid, tid and id, encoded as ids.py says. */
static inline const u8 *SCAN(id)(Tokens *t, const u8 *p, const u8 *end, int64_t *out) {
    u8 c = *p;
    if (LIKELY(is_digit(c))) { /* up to 17 digits */
        const u8 *s = p;
        int64_t v = 0;
        for (int i = 0; i < 17 && is_digit(*s); i++) v = v * 10 + (*s++ - '0');
        if (LIKELY(s < end && ends_token(*s))) {
            *out = v;
            return s;
        }
    }
    const u8 *text = p, *next;
    size_t n;
    int escaped = 0;
    Number number;
    if (c == '"') {
        next = SCAN(string)(t, p, end, &text, &n, &escaped);
        if (!next) return NULL;
        /* decimal text that is written as a number would be, is that number */
        if (!escaped && n && n <= 19 && is_digit(*text) && (*text != '0' || n == 1) &&
            number_shape(text, next - 1, &number) && number.end == next - 1 &&
            number_integer(&number, TEXT_ID_BASE, out))
            return next;
    } else if (is_digit(c) || c == '-') {
        double d = 0.5;
        next = SCAN(number)(t, p, end, &number);
        if (!next || number_integer(&number, TEXT_ID_BASE, out)) return next;
        if ((number.fraction_digits || number.has_exponent) && number_double(t, &number, &d) != OK) {
            t->why = NO_MEMORY;
            return NULL;
        }
        if (d > -4e18 && d < 9e18 && d == (double)(int64_t)d) {
            *out = (int64_t)d;
            return next;
        }
        n = (size_t)(next - p);
    } else if (c == '{' || c == '[') {
        next = SCAN(nested)(t, p, end);
        if (!next) return NULL;
        n = (size_t)(next - p);
    } else {
        next = SCAN(word)(t, p, end, out);
        if (*out < 0) *out = NO_ID;
        return next;
    }
    int32_t code = intern_string(t, &t->strings, text, n, escaped);
    if (code < 0 && t->why > BAD) return NULL;
    *out = code < 0 ? NO_ID : TEXT_ID_BASE - code;
    return next;
}

/* name and cat: a string; anything else but null by its text. */
static inline const u8 *SCAN(label)(Tokens *t, const u8 *p, const u8 *end, int32_t *out) {
    const u8 *text = p, *next;
    size_t n;
    int escaped = 0;
    if (LIKELY(*p == '"')) {
        next = SCAN(string)(t, p, end, &text, &n, &escaped);
        if (!next) return NULL;
    } else {
        next = SCAN(skip_value)(t, p, end);
        *out = -1;
        if (!next || *p == 'n') return next;
        n = (size_t)(next - p);
    }
    *out = intern_string(t, &t->strings, text, n, escaped);
    return t->why > BAD ? NULL : next;
}

static inline const u8 *SCAN(phase)(Tokens *t, const u8 *p, const u8 *end, u8 *out) {
    if (LIKELY(p[0] == '"' && p[2] == '"' && p[1] != '\\' && p[1] != '"')) {
        *out = p[1] < 127 ? p[1] : 127;
        return p + 3;
    }
    *out = 0;
    if (*p != '"') return SCAN(skip_value)(t, p, end);
    const u8 *text;
    size_t n;
    int escaped;
    const u8 *next = SCAN(string)(t, p, end, &text, &n, &escaped);
    if (!next || n == 0) return next;
    *out = text[0] < 127 ? text[0] : 127;
    if (escaped && text[0] == '\\' && unescape(t, text, n) == OK && t->scratch.length)
        *out = t->scratch.data[0] < 127 ? t->scratch.data[0] : 127;
    return next;
}

/* One argument's value, stored. */
static inline const u8 *SCAN(argument)(Tokens *t, const u8 *p, const u8 *end, int key) {
    u8 c = *p;
    int64_t value;
    int tag;
    const u8 *next;
    if (is_digit(c) || c == '-') {
        const u8 *s = p + (c == '-');
        int64_t v = 0;
        for (int i = 0; i < 17 && is_digit(*s); i++) v = v * 10 + (*s++ - '0');
        tag = ARG_INT;
        value = c == '-' ? -v : v;
        next = s;
        Number number;
        if (UNLIKELY(s >= end || !ends_token(*s) || s == p + 1 - is_digit(c))) {
            next = SCAN(number)(t, p, end, &number);
            if (!next) return NULL;
            if (!number_integer(&number, INT64_MIN, &value)) {
                double d = 0;
                tag = number.fraction_digits || number.has_exponent ? ARG_FLOAT : ARG_BIGINT;
                if (tag == ARG_BIGINT)
                    value = intern_string(t, &t->strings, p, (size_t)(next - p), 0);
                else if (number_double(t, &number, &d) != OK)
                    t->why = NO_MEMORY;
                else
                    memcpy(&value, &d, 8);
                if (UNLIKELY(d - d != 0)) return SCAN(stop)(t, p, end); /* too large for a double */
            }
        }
    } else if (c == '"') {
        const u8 *text;
        size_t n;
        int escaped;
        next = SCAN(string)(t, p, end, &text, &n, &escaped);
        if (!next) return NULL;
        tag = ARG_STRING;
        if (UNLIKELY(t->strings.text.length > t->text_budget && n > 32 && !escaped && is_clean_text(text, n))) {
            uint32_t at;
            value = table_find(&t->strings, text, n, text_hash(text, n, t->seed), &at);
            if (value < 0 && t->keep) {
                tag = ARG_SPILLED;
                if (spill_text(t, text, n, &value) != OK) t->why = NO_MEMORY;
            }
        } else {
            value = intern_string(t, &t->strings, text, n, escaped);
        }
    } else if (c == '{' || c == '[') {
        next = SCAN(nested)(t, p, end);
        if (!next) return NULL;
        tag = ARG_JSON;
        value = t->keep ? intern(t, &t->strings, p, (size_t)(next - p)) : -1;
    } else {
        next = SCAN(word)(t, p, end, &value);
        if (!next) return NULL;
        tag = ARG_CONST;
    }
    if (UNLIKELY(t->why > BAD)) return NULL;
    Status status = put_arg(t, key, tag, value);
    if (UNLIKELY(status != OK)) {
        t->why = status;
        return NULL;
    }
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
            if (escaped && unescape(t, text, n) == OK) {
                text = t->scratch.data;
                n = t->scratch.length;
            }
            *key = SCAN(event_key)(text, n);
            if (*key == AT_OTHER && UNLIKELY(text != t->scratch.data && (escaped || !is_clean_text(text, n)))) {
                Status status = t->clean_text(t, text, n, offset_of(t, p)); /* to be counted */
                if (status != OK) {
                    t->why = status;
                    return NULL;
                }
            }
        }
    }
    guess_learn(g, start, (size_t)(p - start), *kind, *key);
    return p;
}

/* p is at the opening brace of an event: stores it and returns the place behind it. */
static const u8 *SCAN(event)(Tokens *t, const u8 *p, const u8 *end) {
    Row row = {NO_TIME, NO_TIME, NO_ID, NO_ID, NO_ID, -1, -1, 0};
    size_t args_from = t->args;
    int state = AT_START, in_args = 0, kind = 0, key = 0;
    int64_t id2 = NO_ID, keys_dropped = t->keys_dropped;
    p++;
    for (;;) {
        p = SCAN(next_key)(t, p, end, state, in_args, &kind, &key);
        if (UNLIKELY(!p)) break;
        if (kind == END_EVENT) {
            if (row.id == NO_ID) row.id = id2;
            Status status = put_row(t, &row, args_from);
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
        if (kind == KEY_ARG) {
            p = SCAN(argument)(t, p, end, key);
            state = AT_ARG + (key & (ARG_STATES - 1));
            if (UNLIKELY(!p)) break;
            if (UNLIKELY(p >= end)) {
                t->why = MORE;
                break;
            }
            continue;
        }
        state = key;
        switch (key) {
        case AT_PH: p = SCAN(phase)(t, p, end, &row.ph); break;
        case AT_CAT: p = SCAN(label)(t, p, end, &row.cat); break;
        case AT_NAME: p = SCAN(label)(t, p, end, &row.name); break;
        case AT_PID: p = SCAN(id)(t, p, end, &row.pid); break;
        case AT_TID: p = SCAN(id)(t, p, end, &row.tid); break;
        case AT_TS: p = SCAN(time)(t, p, end, &row.ts); break;
        case AT_DUR: p = SCAN(time)(t, p, end, &row.dur); break;
        case AT_ID: p = SCAN(id)(t, p, end, &row.id); break;
        case AT_ID2: p = SCAN(id)(t, p, end, &id2); break;
        case AT_ARGS:
            t->args = args_from; /* a repeated key: the last one counts */
            if (*p == '{') {
                p++;
                in_args = 1;
                state = AT_ARGS_START;
            } else {
                p = SCAN(skip_value)(t, p, end);
            }
            break;
        default: p = SCAN(skip_value)(t, p, end);
        }
        if (UNLIKELY(!p)) break;
        if (UNLIKELY(p >= end)) {
            t->why = MORE;
            break;
        }
    }
    t->args = args_from;
    t->keys_dropped = keys_dropped; /* the event will be read again, or mended */
    return NULL;
}

/* An element that is no event: a row of defaults. */
static const u8 *SCAN(other_element)(Tokens *t, const u8 *p, const u8 *end) {
    static const Row none = {NO_TIME, NO_TIME, NO_ID, NO_ID, NO_ID, -1, -1, 0};
    const u8 *next = SCAN(skip_value)(t, p, end);
    if (!next) return NULL;
    const u8 *behind = SCAN(skip_space)(next, end);
    if (behind >= end || (*behind != ',' && *behind != ']')) return SCAN(stop)(t, behind, end);
    Status status = put_row(t, &none, t->args);
    if (status == OK) return next;
    t->why = status;
    return NULL;
}

/* The callback's answer about what stands at p. Asks with a small piece first; the text may be long. */
static const u8 *SCAN(mend)(Tokens *t, const u8 *p, const u8 *end) {
    size_t skip = 0, all = (size_t)(end - p), piece = 1 << 14;
    int last = t->final || all >= MAX_DAMAGE;
    for (;;) {
        if (piece > all) piece = all;
        Status status = t->repair(t, p, piece, offset_of(t, p), last && piece == all, &skip);
        if (status != OK) {
            t->why = status;
            return NULL;
        }
        if (skip > 0 || piece == all) break;
        piece *= 8;
    }
    if (skip == 0) {
        t->why = MORE;
        return NULL;
    }
    if (skip > all) skip = all;
    if (t->clean.length > 0) {
        if (bytes_set(&t->mended, t->clean.data, t->clean.length) < 0) {
            t->why = NO_MEMORY;
            return NULL;
        }
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
