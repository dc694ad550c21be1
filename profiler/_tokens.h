/* What the tokeniser keeps: columns, interned texts, guesses, and numbers read exactly.
 *
 * Whatever is not plain strict JSON is handed to a callback (see Question); this file and _parse.h only ever accept what
 * they fully understand.
 */
#include <float.h>
#include <locale.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;

#define PAD 64                /* readable bytes behind every text that is parsed */
#define MAX_DEPTH 96          /* of nested arguments; json.loads recurses over what is kept */
#define MAX_DIGITS 4000       /* of a number; Python refuses to print longer integers */
#define MAX_ARG_KEYS 65535    /* arguments are numbered in 16 bits */
#define MAX_ROWS INT32_MAX    /* events and arguments are counted in 32 */
#define MAX_TEXT ((size_t)1 << 30)
#define MAX_TEXTS (1 << 29)
#define MAX_EVENT ((size_t)1 << 26)  /* a longer one is taken for damage */
#define MAX_DAMAGE ((size_t)1 << 22) /* how far to look for the end of damage before giving it up */
#define NO_TIME INT64_MIN
#define NO_ID INT64_MIN
#define TEXT_ID_BASE (-(INT64_C(1) << 62))

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline uint64_t load64(const u8 *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline int is_digit(u8 c) { return (u8)(c - '0') < 10; }
static inline int is_space(u8 c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
static inline int ends_token(u8 c) { return c == ',' || c == '}' || c == ']' || is_space(c); }

/* ---------------------------------------------------------------------------------------------
 * Growing bytes
 */

typedef struct {
    u8 *data;
    size_t length, room;
} Bytes;

/* Makes room for `length` bytes and the padding. Returns 0, or -1 without memory. */
static int bytes_reserve(Bytes *b, size_t length) {
    if (length + PAD <= b->room && b->data) return 0;
    size_t room = length + length / 2 + 4096;
    u8 *data = realloc(b->data, room + PAD);
    if (!data) return -1;
    b->data = data;
    b->room = room + PAD;
    return 0;
}

static int bytes_append(Bytes *b, const u8 *p, size_t n) {
    if (bytes_reserve(b, b->length + n) < 0) return -1;
    if (n) memcpy(b->data + b->length, p, n);
    b->length += n;
    return 0;
}

static int bytes_set(Bytes *b, const u8 *p, size_t n) {
    b->length = 0;
    if (bytes_append(b, p, n) < 0) return -1;
    memset(b->data + n, 0, PAD);
    return 0;
}

/* ---------------------------------------------------------------------------------------------
 * Interned texts
 */

typedef struct {
    size_t start;
    uint32_t n, hash;
} Text;

typedef struct {
    Bytes bytes, texts; /* Text of each */
    int32_t *slot;      /* a power of two of them, at least twice the count */
    uint32_t mask;
    int32_t count;
} Table;

static inline Text *text_of(const Table *t, int32_t i) { return (Text *)t->texts.data + i; }

static inline uint64_t fold(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
    __uint128_t r = (__uint128_t)a * b;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
#else
    uint64_t x = (a ^ (b >> 32)) * 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x = (x ^ b) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
#endif
}

/* The seed is drawn per run: nobody can prepare a file whose texts all collide. The last words may overlap others. */
static inline uint32_t text_hash(const u8 *p, size_t n, uint64_t seed) {
    const u8 *end = p + n;
    uint64_t h = seed ^ n, word = 0;
    for (; end - p > 16; p += 16) h = fold(load64(p) ^ h, load64(p + 8) ^ seed ^ 0xa0761d6478bd642fu);
    if (n >= 8) {
        h = fold(load64(n > 16 ? end - 16 : p) ^ h, load64(end - 8) ^ seed ^ 0xe7037ed1a0b428dbu);
    } else {
        while (p < end) word = word << 8 | *p++;
        h = fold(word ^ h, seed ^ 0x8ebc6af09c88c6e3u);
    }
    return (uint32_t)(h ^ (h >> 32));
}

static int table_rehash(Table *t, uint32_t mask) {
    int32_t *slot = malloc(((size_t)mask + 1) * sizeof *slot);
    if (!slot) return -1;
    memset(slot, 0xff, ((size_t)mask + 1) * sizeof *slot);
    for (int32_t i = 0; i < t->count; i++) {
        uint32_t k = text_of(t, i)->hash & mask;
        while (slot[k] >= 0) k = (k + 1) & mask;
        slot[k] = i;
    }
    free(t->slot);
    t->slot = slot;
    t->mask = mask;
    return 0;
}

/* The number of a text, or -1. With -1, *at is where table_add would put it. */
static inline int32_t table_find(const Table *t, const u8 *p, size_t n, uint32_t hash, uint32_t *at) {
    if (UNLIKELY(!t->slot)) return -1;
    uint32_t k = hash & t->mask;
    for (;; k = (k + 1) & t->mask) {
        int32_t i = t->slot[k];
        if (i < 0) {
            *at = k;
            return -1;
        }
        const Text *text = text_of(t, i);
        if (text->hash == hash && text->n == n && memcmp(t->bytes.data + text->start, p, n) == 0) return i;
    }
}

/* Adds a text that is not there yet. Returns its number, or -1 without memory. */
static int32_t table_add(Table *t, const u8 *p, size_t n, uint32_t hash, uint32_t at) {
    Text text = {t->bytes.length, (uint32_t)n, hash};
    if (!t->slot || (uint32_t)t->count * 2 >= t->mask) {
        if (t->count >= MAX_TEXTS || table_rehash(t, t->slot ? t->mask * 2 + 1 : 1023) < 0) return -1;
        at = hash & t->mask;
        while (t->slot[at] >= 0) at = (at + 1) & t->mask;
    }
    if (bytes_append(&t->bytes, p, n) < 0 || bytes_append(&t->texts, (u8 *)&text, sizeof text) < 0) return -1;
    t->slot[at] = t->count;
    return t->count++;
}

static void table_free(Table *t) {
    free(t->bytes.data);
    free(t->texts.data);
    free(t->slot);
}

/* ---------------------------------------------------------------------------------------------
 * The state of one run
 */

/* COL_ARGS_FROM: the number of an event's first argument */
enum { COL_PH, COL_NAME, COL_CAT, COL_TS, COL_DUR, COL_THREAD, COL_ID, COL_ARGS_FROM, EVENT_COLUMNS };
/* COL_WIDE: what does not fit into 32 bits; COL_ARG_VALUE is then its place */
enum { COL_ARG_KEY = EVENT_COLUMNS, COL_ARG_TAG, COL_ARG_VALUE, COL_WIDE, COLUMNS };
static const u8 column_size[COLUMNS] = {1, 4, 4, 8, 8, 4, 8, 4, 2, 1, 4, 8};
static const int64_t column_default[EVENT_COLUMNS] = {0, -1, -1, NO_TIME, NO_TIME, -1, NO_ID, 0};

enum { ARG_INT, ARG_FLOAT, ARG_STRING, ARG_JSON, ARG_CONST, ARG_BIGINT, ARG_SPILLED, ARG_WIDE };

/* Where in an event the parser stands: the key before decides what is likely to follow. */
enum { AT_START, AT_PH, AT_CAT, AT_NAME, AT_PID, AT_TID, AT_TS, AT_DUR, AT_ID, AT_ID2, AT_ARGS, AT_OTHER,
       AT_ARGS_START, AT_ARGS_END, AT_ARG };
#if !defined(ARG_STATES)
#define ARG_STATES 4096 /* a power of two */
#endif
#define STATES (AT_ARG + ARG_STATES)

enum { KEY_EVENT, KEY_ARG, END_ARGS, END_EVENT };

/* The literal text that followed a key's value before, up to where the next value begins. */
typedef struct {
    u8 text[40];
    uint64_t last; /* which bits of the last, partial word count */
    uint32_t mask;
    uint16_t key;
    u8 length, kind;
} Guess;

typedef struct {
    int64_t ts, dur, pid, tid, id, id2;
    int32_t name, cat;
    u8 ph;
} Row;
static const Row no_row = {NO_TIME, NO_TIME, NO_ID, NO_ID, NO_ID, NO_ID, -1, -1, 0};

/* The shape of a decimal number; the digits are not interpreted yet. */
typedef struct {
    const u8 *start, *whole, *fraction, *end;
    int whole_digits, fraction_digits, negative, has_exponent;
    int64_t exponent;
} Number;

/* A value as it stands in the text. */
typedef struct {
    enum { INTEGER, NUMBER, STRING, NESTED, WORD } kind;
    int escaped;
    const u8 *text; /* without the quotes of a string */
    size_t n;
    int64_t integer; /* of an INTEGER; true, false and null are 1, 0 and -1 */
    Number number;
} Value;

typedef enum { OK, MORE, BAD, NO_MEMORY, RAISED } Status;

typedef struct Tokens Tokens;

/* About text that is not strict JSON; `skip` is NULL where it is a string, without its quotes, whose UTF-8 text is asked
 * for. Else it is what stands at an element that cannot be read: how much to skip (0: needs more text), and one event to
 * take in its place (empty: none). */
typedef struct {
    Tokens *tokens;
    const u8 *text;
    size_t n, *skip;
    int64_t offset;
    int final;
} Question;

struct Tokens {
    /* core.py knows these fields by their places: see tokens_layout */
    void *column[COLUMNS]; /* NULL: every row holds the default */
    size_t rows, row_room, args, arg_room, wide, wide_room;
    size_t args_from, wide_from; /* where those of the next event, or of the one being read, begin */
    Table strings, keys;
    Table threads; /* each pair of pid and tid, as their 16 bytes */
    Bytes carry;   /* the unfinished end of the last chunk */
    Bytes spill;   /* argument texts beyond the budget, for the caller to put aside */
    size_t text_budget;
    int64_t base; /* offset in the whole input of the text now parsed */
    int64_t keys_dropped, unmended;
    int keep; /* 0: parse only */
    int done;
    Status (*ask)(const Question *); /* puts the answer into `clean` and returns OK, or RAISED */
    /* the rest is for C alone */
    int64_t pair[2]; /* pid and tid of the event before */
    int32_t thread;  /* their number, -1 for neither */
    Table odd; /* texts as written that a callback had to clean, so that each is cleaned once */
    Bytes odd_codes;
    Bytes clean;   /* what a callback answered, or a number for the C library */
    Bytes mended;  /* a repaired event while it is parsed */
    int64_t spilled;
    const u8 *text;
    uint64_t seed;
    int final;
    Status why;
    size_t (*elements)(Tokens *, const u8 *, const u8 *); /* the parser for this machine */
    Guess guess[STATES][2];
};

static const u8 *fail(Tokens *t, Status why) {
    t->why = why;
    return NULL;
}

static int64_t offset_of(const Tokens *t, const u8 *p) { return t->base + (p - t->text); }

void tokens_free(Tokens *t) {
    if (!t) return;
    for (int i = 0; i < COLUMNS; i++) free(t->column[i]);
    table_free(&t->strings);
    table_free(&t->keys);
    table_free(&t->threads);
    table_free(&t->odd);
    Bytes *all[] = {&t->odd_codes, &t->carry, &t->clean, &t->mended, &t->spill};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->data);
    free(t);
}

Tokens *tokens_new(uint64_t seed) {
    Tokens *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->seed = seed;
    t->pair[0] = t->pair[1] = NO_ID;
    t->thread = -1;
    return t;
}

static void guess_learn(Guess *g, const u8 *p, size_t length, int kind, int key) {
    if (length == 0 || length > 32) return;
    g[1] = g[0];
    memset(g[0].text, 0, sizeof g[0].text);
    memcpy(g[0].text, p, length);
    g[0].mask = length == 32 ? ~(uint32_t)0 : ((uint32_t)1 << length) - 1;
    u8 last[8] = {0};
    memset(last, 0xff, length % 8);
    g[0].last = load64(last);
    g[0].length = (u8)length;
    g[0].kind = (u8)kind;
    g[0].key = (uint16_t)key;
}

/* ---------------------------------------------------------------------------------------------
 * Texts
 */

/* Whether bytes are valid UTF-8 without raw control characters: strict JSON needs both. */
static int is_clean_text(const u8 *p, size_t n) {
    for (size_t i = 0; i < n;) {
        u8 c = p[i];
        if (c < 0x80) {
            if (c < 0x20) return 0;
            i++;
            continue;
        }
        int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        if (c < 0xc2 || c > 0xf4 || n - i <= (size_t)more) return 0;
        u8 low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        if (p[i + 1] < low || p[i + 1] > high) return 0;
        for (int k = 2; k <= more; k++)
            if ((p[i + k] & 0xc0) != 0x80) return 0;
        i += (size_t)more + 1;
    }
    return 1;
}

static int32_t intern_odd(Tokens *t, Table *table, const u8 *p, size_t n);

/* The code of a text in a table, added if it is new. -1 with t->why set: something went wrong. */
static inline int32_t intern(Tokens *t, Table *table, const u8 *p, size_t n, int is_clean) {
    uint32_t at = 0, hash = text_hash(p, n, t->seed);
    int32_t code = table_find(table, p, n, hash, &at);
    if (LIKELY(code >= 0)) return code;
    if (UNLIKELY(!is_clean && !is_clean_text(p, n))) return intern_odd(t, table, p, n);
    code = table_add(table, p, n, hash, at);
    if (code < 0) t->why = NO_MEMORY;
    return code;
}

/* A text with escapes, or one that the strict rules do not cover: cleaned by the callback, once for each way it is
 * written. */
static int32_t intern_odd(Tokens *t, Table *table, const u8 *p, size_t n) {
    uint32_t at = 0, hash = text_hash(p, n, t->seed);
    int remember = table == &t->strings && t->odd.bytes.length + n < t->text_budget / 2;
    int32_t known = remember ? table_find(&t->odd, p, n, hash, &at) : -1;
    if (known >= 0) return ((int32_t *)t->odd_codes.data)[known];
    t->why = t->ask(&(Question){t, p, n, NULL, offset_of(t, p), 0});
    if (t->why != OK) return -1;
    int32_t code = intern(t, table, t->clean.data, t->clean.length, 1);
    if (code < 0 || !remember) return code;
    if (table_add(&t->odd, p, n, hash, at) < 0 || bytes_append(&t->odd_codes, (u8 *)&code, sizeof code) < 0) {
        t->why = NO_MEMORY;
        return -1;
    }
    return code;
}

/* The code of a string as written between its quotes. */
static inline int32_t intern_string(Tokens *t, Table *table, const u8 *p, size_t n, int escaped) {
    if (!t->keep) return -1;
    return UNLIKELY(escaped) ? intern_odd(t, table, p, n) : intern(t, table, p, n, 0);
}

/* The number of an argument key, or -1 when there are too many different ones. */
static int key_number(Tokens *t, const u8 *p, size_t n, int escaped) {
    if (!t->keep) return (int)(text_hash(p, n, t->seed) & 0x7fff);
    if (UNLIKELY(t->keys.count >= MAX_ARG_KEYS)) {
        uint32_t at = 0;
        int32_t known = escaped ? -1 : table_find(&t->keys, p, n, text_hash(p, n, t->seed), &at);
        t->keys_dropped += known < 0;
        return known;
    }
    return intern_string(t, &t->keys, p, n, escaped);
}

/* ---------------------------------------------------------------------------------------------
 * Rows
 */

static int grow_columns(Tokens *t, int first, int last, size_t *room) {
    size_t more = *room + *room / 2 + 4096;
    for (int i = first; i < last; i++) {
        if (!t->column[i] && i < EVENT_COLUMNS) continue;
        void *data = realloc(t->column[i], more * column_size[i]);
        if (!data) return -1;
        t->column[i] = data;
    }
    *room = more;
    return 0;
}

static inline void store(Tokens *t, int column, size_t at, int64_t value) {
    void *data = t->column[column];
    switch (column_size[column]) {
    case 1: ((u8 *)data)[at] = (u8)value; break;
    case 2: ((uint16_t *)data)[at] = (uint16_t)value; break;
    case 4: ((int32_t *)data)[at] = (int32_t)value; break;
    default: ((int64_t *)data)[at] = value;
    }
}

/* Stores an event's value. A column is made when the first value arrives that is not its default: a file of a
 * hundred million empty objects costs nothing for each. Returns 0, or -1 without memory. */
static inline int put(Tokens *t, int column, int64_t value) {
    if (UNLIKELY(!t->column[column])) {
        if (value == column_default[column]) return 0;
        t->column[column] = malloc(t->row_room * column_size[column]);
        if (!t->column[column]) return -1;
        for (size_t i = 0; i < t->rows; i++) store(t, column, i, column_default[column]);
    }
    store(t, column, t->rows, value);
    return 0;
}

/* Forgets the arguments of the event being read. */
static void drop_args(Tokens *t) {
    t->args = t->args_from;
    t->wide = t->wide_from;
}

/* Looks up what the event's pid and tid together have for a number. */
static Status find_thread(Tokens *t, const Row *row) {
    int none = row->pid == NO_ID && row->tid == NO_ID;
    t->pair[0] = row->pid;
    t->pair[1] = row->tid;
    t->thread = none ? -1 : intern(t, &t->threads, (const u8 *)t->pair, 2 * sizeof(int64_t), 1);
    return none || t->thread >= 0 ? OK : NO_MEMORY;
}

/* Stores an event. Its arguments are already stored. */
static inline Status put_row(Tokens *t, const Row *row) {
    if (!t->keep) {
        t->rows++;
        return OK;
    }
    if (UNLIKELY(t->rows + 1 >= t->row_room)) { /* there is always room for what stands behind the last one */
        if (t->rows >= MAX_ROWS) return NO_MEMORY;
        if (grow_columns(t, 0, EVENT_COLUMNS, &t->row_room) < 0) return NO_MEMORY;
    }
    if (UNLIKELY(row->pid != t->pair[0] || row->tid != t->pair[1]) && find_thread(t, row) != OK) return NO_MEMORY;
    const int64_t values[EVENT_COLUMNS] = {row->ph,  row->name, row->cat, row->ts,
                                           row->dur, t->thread, row->id,  (int64_t)t->args_from};
    for (int i = 0; i < EVENT_COLUMNS; i++)
        if (UNLIKELY(put(t, i, values[i]) < 0)) return NO_MEMORY;
    t->rows++;
    t->args_from = t->args;
    t->wide_from = t->wide;
    return OK;
}

static inline Status put_arg(Tokens *t, int key, int tag, int64_t value) {
    if (!t->keep || key < 0) return OK;
    if (UNLIKELY(t->args == t->arg_room) &&
        (t->args >= MAX_ROWS || grow_columns(t, COL_ARG_KEY, COL_WIDE, &t->arg_room) < 0))
        return NO_MEMORY;
    if (UNLIKELY(value != (int32_t)value || tag == ARG_FLOAT || tag == ARG_SPILLED)) {
        if (t->wide == t->wide_room && grow_columns(t, COL_WIDE, COLUMNS, &t->wide_room) < 0) return NO_MEMORY;
        store(t, COL_WIDE, t->wide, value);
        value = (int64_t)t->wide++;
        if (tag == ARG_INT) tag = ARG_WIDE;
    }
    store(t, COL_ARG_KEY, t->args, key);
    store(t, COL_ARG_TAG, t->args, tag);
    store(t, COL_ARG_VALUE, t->args, value);
    t->args++;
    return OK;
}

/* ---------------------------------------------------------------------------------------------
 * Numbers
 */

static const u8 *digits_end(const u8 *p, const u8 *end) {
    while (p < end && is_digit(*p)) p++;
    return p;
}

/* Reads -digits[.digits][e[+-]digits]; one of the two groups of digits may be missing. Returns 0 if there
 * is no number at p. */
static int number_shape(const u8 *p, const u8 *end, Number *out) {
    memset(out, 0, sizeof *out);
    out->start = p;
    out->negative = *p == '-';
    p += out->negative;
    out->whole = p;
    out->fraction = p = digits_end(p, end);
    out->whole_digits = (int)(p - out->whole);
    if (p < end && *p == '.') {
        out->fraction = ++p;
        p = digits_end(p, end);
        out->fraction_digits = (int)(p - out->fraction);
    }
    if (out->whole_digits + out->fraction_digits == 0) return 0;
    if (p < end && (*p | 0x20) == 'e') {
        int negative = 0;
        p++;
        if (p < end && (*p == '+' || *p == '-')) negative = *p++ == '-';
        const u8 *digits = p;
        for (; p < end && is_digit(*p); p++)
            if (out->exponent < 100000) out->exponent = out->exponent * 10 + (*p - '0');
        if (p == digits) return 0;
        if (negative) out->exponent = -out->exponent;
        out->has_exponent = 1;
    }
    out->end = p;
    return p - out->start <= MAX_DIGITS;
}

/* Digit i of the number, counted from the first whole digit; 0 behind the last one. */
static int number_digit(const Number *n, int64_t i) {
    if (i < 0) return 0;
    if (i < n->whole_digits) return n->whole[i] - '0';
    i -= n->whole_digits;
    return i < n->fraction_digits ? n->fraction[i] - '0' : 0;
}

/* Microseconds in any notation to nanoseconds, half a nanosecond away from zero. */
static int64_t number_ns(const Number *n) {
    int64_t point = n->whole_digits + n->exponent + 3; /* digits before it make the nanoseconds */
    if (point < 0) return 0;
    uint64_t v = 0;
    for (int64_t i = 0; i < point; i++) {
        if (v > (uint64_t)INT64_MAX / 10) return NO_TIME;
        v = v * 10 + (uint64_t)number_digit(n, i);
        if (v == 0 && i > n->whole_digits + n->fraction_digits) return 0;
    }
    v += number_digit(n, point) >= 5;
    if (v > (uint64_t)INT64_MAX) return NO_TIME;
    return n->negative ? -(int64_t)v : (int64_t)v;
}

/* The common case of number_ns: up to 15 whole digits and any fraction. NULL: look closer. */
static inline const u8 *plain_ns(const u8 *p, int64_t *out) {
    const u8 *start = p;
    int negative = *p == '-';
    p += negative;
    const u8 *digits = p;
    uint64_t v = 0;
    for (int i = 0; i < 16 && is_digit(*p); i++) v = v * 10 + (uint64_t)(*p++ - '0');
    if (UNLIKELY(p == digits || p - digits > 16 || is_digit(*p) || v > 9000000000000000u)) return NULL;
    v *= 1000;
    if (*p == '.') {
        p++;
        if (!is_digit(*p)) return NULL;
        unsigned part = 0, scale = 1000;
        for (; scale && is_digit(*p); scale /= 10) part += scale * (unsigned)(*p++ - '0');
        v += (part + 5) / 10;
        while (is_digit(*p))
            if (++p - start > 48) return NULL;
    }
    if (UNLIKELY((*p | 0x20) == 'e')) return NULL;
    *out = negative ? -(int64_t)v : (int64_t)v;
    return p;
}

/* The double nearest to a number; the C library where it is too close to tell. */
static Status number_double(Tokens *t, const Number *n, double *out) {
    if (LDBL_MANT_DIG >= 64 && !n->has_exponent && n->whole_digits + n->fraction_digits <= 19) {
        uint64_t v = 0, by = 1; /* both exact in 64 bits of mantissa, so that the quotient is off by 2^-64 of it at most */
        for (int i = 0; i < n->whole_digits; i++) v = v * 10 + (uint64_t)(n->whole[i] - '0');
        for (int i = 0; i < n->fraction_digits; i++, by *= 10) v = v * 10 + (uint64_t)(n->fraction[i] - '0');
        long double q = (long double)v / (long double)by, slack = q * 0x1p-63L;
        *out = (double)(n->negative ? -q : q);
        if ((double)(q - slack) == (double)(q + slack)) return OK;
    }
    size_t length = (size_t)(n->end - n->start);
    if (bytes_set(&t->clean, n->start, length) < 0) return NO_MEMORY;
    /* strtod reads the decimal point of the process's locale */
    if (n->fraction > n->whole + n->whole_digits)
        t->clean.data[n->fraction - n->start - 1] = (u8)*localeconv()->decimal_point;
    *out = strtod((const char *)t->clean.data, NULL);
    return OK;
}

/* The integer a number is, if it has no fraction and fits (low, INT64_MAX]. */
static int number_integer(const Number *n, int64_t low, int64_t *out) {
    if (n->fraction_digits || n->has_exponent) return 0;
    uint64_t v = 0;
    for (int i = 0; i < n->whole_digits; i++) {
        uint64_t digit = (uint64_t)(n->whole[i] - '0');
        if (v > ((uint64_t)INT64_MAX - digit) / 10) return 0;
        v = v * 10 + digit;
    }
    *out = n->negative ? -(int64_t)v : (int64_t)v;
    return *out > low;
}

/* Puts an argument's text aside. The place is (offset << 24 | length). */
static Status spill_text(Tokens *t, const u8 *p, size_t n, int64_t *place) {
    if (n >= (1 << 24)) n = (1 << 24) - 1;
    *place = (int64_t)((uint64_t)t->spilled << 24 | n);
    if (bytes_append(&t->spill, p, n) < 0) return NO_MEMORY;
    t->spilled += (int64_t)n;
    return OK;
}

/* ---------------------------------------------------------------------------------------------
 * Values into columns. Each returns OK, BAD (the event is for the callback), or what went wrong.
 */

/* A time: a number, a number in quotes, or nothing usable. */
static int64_t time_of(const Value *v) {
    const u8 *p = v->text, *end = v->text + v->n;
    Number number;
    if (v->kind != INTEGER && v->kind != NUMBER && v->kind != STRING) return NO_TIME;
    while (p < end && is_space(*p)) p++;
    while (p < end && is_space(end[-1])) end--;
    if (p < end && *p == '+') p++;
    return p < end && number_shape(p, end, &number) && number.end == end ? number_ns(&number) : NO_TIME;
}

/* Decimal text that is written as a number would be, is that number. */
static int is_plain_integer(const Value *v, Number *number) {
    const u8 *end = v->text + v->n;
    return !v->escaped && v->n && v->n <= 19 && is_digit(*v->text) && (*v->text != '0' || v->n == 1) &&
           number_shape(v->text, end, number) && number->end == end;
}

/* pid, tid and id, encoded as ids.py says. */
static Status put_id(Tokens *t, const Value *v, int64_t *out) {
    Number number = v->number;
    double d = 0.5;
    *out = v->kind == WORD && v->integer < 0 ? NO_ID : v->integer;
    if (v->kind == INTEGER || v->kind == WORD) return OK;
    if (v->kind == NUMBER || (v->kind == STRING && is_plain_integer(v, &number))) {
        if (number_integer(&number, TEXT_ID_BASE, out)) return OK;
        if ((number.fraction_digits || number.has_exponent) && number_double(t, &number, &d) != OK) return NO_MEMORY;
        *out = (int64_t)(d > -4e18 && d < 9e18 ? d : 0);
        if (d == (double)*out) return OK;
    }
    int32_t code = intern_string(t, &t->strings, v->text, v->n, v->escaped);
    if (t->why > BAD) return t->why;
    *out = code < 0 ? NO_ID : TEXT_ID_BASE - code;
    return OK;
}

/* The value of an event's own key. */
static Status put_field(Tokens *t, Row *row, int key, const Value *v) {
    switch (key) {
    case AT_TS: row->ts = time_of(v); return OK;
    case AT_DUR: row->dur = time_of(v); return OK;
    case AT_PID: return put_id(t, v, &row->pid);
    case AT_TID: return put_id(t, v, &row->tid);
    case AT_ID: return put_id(t, v, &row->id);
    case AT_ID2: return put_id(t, v, &row->id2);
    case AT_NAME:
    case AT_CAT: { /* anything but text and null goes by how it is written */
        int none = v->kind == WORD && v->integer < 0;
        int32_t code = none ? -1 : intern_string(t, &t->strings, v->text, v->n, v->escaped);
        *(key == AT_NAME ? &row->name : &row->cat) = code;
        return t->why > BAD ? t->why : OK;
    }
    case AT_PH: {
        Status status = v->escaped ? t->ask(&(Question){t, v->text, v->n, NULL, offset_of(t, v->text), 0}) : OK;
        const u8 *letter = v->escaped ? t->clean.data : v->text;
        row->ph = status != OK || v->kind != STRING || v->n == 0 ? 0 : *letter < 127 ? *letter : 127;
        return status;
    }
    case AT_ARGS: drop_args(t); return OK; /* a repeated key: the last one counts */
    default: return OK;
    }
}

/* The value of an argument. */
static inline Status put_value(Tokens *t, int key, const Value *v) {
    int64_t value = v->integer;
    int tag = v->kind == INTEGER ? ARG_INT : ARG_CONST;
    if (v->kind == STRING) {
        uint32_t at;
        tag = ARG_STRING;
        int spill = t->strings.bytes.length > t->text_budget && v->n > 32 && !v->escaped && t->keep;
        if (UNLIKELY(spill) && is_clean_text(v->text, v->n) &&
            table_find(&t->strings, v->text, v->n, text_hash(v->text, v->n, t->seed), &at) < 0) {
            tag = ARG_SPILLED;
            if (spill_text(t, v->text, v->n, &value) != OK) return NO_MEMORY;
        } else {
            value = intern_string(t, &t->strings, v->text, v->n, v->escaped);
        }
    } else if (v->kind == NESTED) {
        tag = ARG_JSON; /* looked at again when all is read, once for each distinct text */
        value = t->keep ? intern(t, &t->strings, v->text, v->n, 1) : -1;
    } else if (v->kind == NUMBER && number_integer(&v->number, INT64_MIN, &value)) {
        tag = ARG_INT;
    } else if (v->kind == NUMBER && !v->number.fraction_digits && !v->number.has_exponent) {
        tag = ARG_BIGINT;
        value = intern_string(t, &t->strings, v->text, v->n, 0);
    } else if (v->kind == NUMBER) {
        double d;
        tag = ARG_FLOAT;
        if (number_double(t, &v->number, &d) != OK) return NO_MEMORY;
        if (UNLIKELY(d - d != 0)) return BAD; /* too large for a double */
        memcpy(&value, &d, 8);
    }
    return t->why > BAD ? t->why : put_arg(t, key, tag, value);
}
