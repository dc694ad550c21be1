/* The tokeniser as a whole: one parser per instruction set, and the seam between chunks. */

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86 1
#include <immintrin.h>

#define SCAN(name) name##_sse2
#define SCAN_SSE2
#include "_parse.h"
#undef SCAN_SSE2
#undef SCAN

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi")
#endif
#define SCAN(name) name##_avx2
#define SCAN_AVX2
#include "_parse.h"
#undef SCAN_AVX2
#undef SCAN
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#define SCAN(name) name##_word
#include "_parse.h"
#undef SCAN

/* Chooses the parser: "avx2", "sse2", "word", or "" for the fastest that runs here. Returns its name, or
 * NULL if this machine or build has no such one. */
const char *tokens_choose(Tokens *t, const char *wanted) {
#if defined(HAVE_X86)
    if ((!*wanted || strcmp(wanted, "avx2") == 0) && __builtin_cpu_supports("avx2")) {
        t->elements = elements_avx2;
        return "avx2";
    }
    if (!*wanted || strcmp(wanted, "sse2") == 0) {
        t->elements = elements_sse2;
        return "sse2";
    }
#endif
    if (*wanted && strcmp(wanted, "word") != 0) return NULL;
    t->elements = elements_word;
    return "word";
}

static void carry_drop(Tokens *t, size_t n) {
    memmove(t->carry.data, t->carry.data + n, t->carry.length - n);
    t->carry.length -= n;
    t->base += (int64_t)n;
}

/* Parses the next chunk of the event list. `data` needs no padding: its last bytes wait in `carry` for the
 * chunk after it. Returns OK, or what stopped it. If t->done is set then, the list ended, and the text
 * behind it is `carry` and then data[*used ...]. */
Status tokens_feed(Tokens *t, const u8 *data, size_t n, size_t *used) {
    size_t at = 0, old = t->carry.length;
    while (t->carry.length > 0 && at < n) {
        /* Finish the element that the last chunk began, on a piece of this one. */
        size_t take = t->carry.length > 4096 ? t->carry.length : 4096;
        if (take > n - at) take = n - at;
        if (bytes_append(&t->carry, data + at, take) < 0) return NO_MEMORY;
        at += take;
        if (t->carry.length <= PAD) continue;
        size_t did = t->elements(t, t->carry.data, t->carry.data + t->carry.length - PAD);
        if (t->why > BAD) return t->why;
        if (!t->done && did >= old) {
            at -= t->carry.length - did;
            t->base += (int64_t)did;
            t->carry.length = 0;
            break;
        }
        carry_drop(t, did);
        old -= did < old ? did : old;
        *used = at;
        if (t->done) return OK;
    }
    *used = n;
    if (t->carry.length > 0) return OK;
    if (n - at > PAD) {
        size_t did = t->elements(t, data + at, data + n - PAD);
        if (t->why > BAD) return t->why;
        t->base += (int64_t)did;
        at += did;
        *used = t->done ? at : n;
    }
    return t->done || bytes_append(&t->carry, data + at, n - at) == 0 ? OK : NO_MEMORY;
}

/* The input is at its end: parses what is left. With t->done set, `carry` is the text behind the list. */
Status tokens_finish(Tokens *t) {
    if (bytes_reserve(&t->carry, t->carry.length) < 0) return NO_MEMORY;
    memset(t->carry.data + t->carry.length, 0, PAD);
    t->final = 1;
    size_t did = t->elements(t, t->carry.data, t->carry.data + t->carry.length);
    if (t->why > BAD) return t->why;
    carry_drop(t, did);
    return OK;
}

/* Begins (another) event list, whose first byte stands at `offset` of the input. */
void tokens_begin(Tokens *t, int64_t offset) {
    t->carry.length = 0;
    t->base = offset;
    t->final = t->done = 0;
}

/* What the answer to a question is. */
Status tokens_answer(Tokens *t, const u8 *p, size_t n) { return bytes_set(&t->clean, p, n) < 0 ? NO_MEMORY : OK; }

/* Gives a column away with its size in bytes, or NULL where every row holds the default. The caller frees it. */
void *tokens_take(Tokens *t, int i, size_t *size) {
    size_t count = i < EVENT_COLUMNS ? t->rows + (i == COL_ARGS_FROM) : i < COL_WIDE ? t->args : t->wide;
    void *data = t->column[i];
    if (data && i == COL_ARGS_FROM) ((int32_t *)data)[t->rows] = (int32_t)t->args; /* where the last event's end */
    *size = count * column_size[i];
    void *fitted = data ? realloc(data, *size ? *size : 1) : NULL;
    t->column[i] = NULL;
    return fitted ? fitted : data;
}

/* How many bytes of Tokens core.py knows: another number than its own is that of another version. */
size_t tokens_layout(void) { return offsetof(Tokens, pair); }
