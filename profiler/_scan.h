/* Looking for bytes in text, 8 to 32 at a time. Included once per instruction set by _parse.h.
 *
 * The including file defines SCAN(name), which gives each copy its own names, and one of
 *   SCAN_AVX2   32-byte vectors
 *   SCAN_SSE2   16-byte vectors, every x86-64
 *   neither     8-byte words in plain C: aarch64 and everything else
 * All of them read up to PAD bytes past the point they are asked about; buffers are padded for that.
 */

/* equal: which of the next bytes are c, once `bits` are set in them */
#if defined(SCAN_AVX2)
#define WIDTH 32
typedef uint32_t SCAN(Mask);
static inline SCAN(Mask) SCAN(equal)(const u8 *p, char bits, char c) {
    __m256i v = _mm256_or_si256(_mm256_loadu_si256((const __m256i *)p), _mm256_set1_epi8(bits));
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, _mm256_set1_epi8(c)));
}
static inline int SCAN(first)(SCAN(Mask) m) { return __builtin_ctz(m); }

#elif defined(SCAN_SSE2)
#define WIDTH 16
typedef uint32_t SCAN(Mask);
static inline SCAN(Mask) SCAN(equal)(const u8 *p, char bits, char c) {
    __m128i v = _mm_or_si128(_mm_loadu_si128((const __m128i *)p), _mm_set1_epi8(bits));
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8(c)));
}
static inline int SCAN(first)(SCAN(Mask) m) { return __builtin_ctz(m); }

#else
#define WIDTH 8
typedef uint64_t SCAN(Mask);
#define ONES 0x0101010101010101u
#define HIGHS 0x8080808080808080u
/* 0x80 in every byte of v that is zero; exact, unlike the shorter trick that may mark a neighbour too */
static inline uint64_t SCAN(zero_bytes)(uint64_t v) {
    return ~(((v & ~HIGHS) + ~HIGHS) | v | ~HIGHS);
}
static inline SCAN(Mask) SCAN(equal)(const u8 *p, char bits, char c) {
    return SCAN(zero_bytes)((load64(p) | ONES * (u8)bits) ^ (ONES * (u8)c));
}
static inline int SCAN(first)(SCAN(Mask) m) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_clzll(m) >> 3;
#else
    return __builtin_ctzll(m) >> 3;
#endif
}
#endif

/* [ and { differ from each other, and ] from }, only in bit 5 */
static inline SCAN(Mask) SCAN(bracket_or_quote)(const u8 *p) {
    return SCAN(equal)(p, 0x20, '{') | SCAN(equal)(p, 0x20, '}') | SCAN(equal)(p, 0, '"');
}

/* p is behind an opening quote: the closing quote, or NULL if the text ends first. Sets *escaped if a
 * backslash stands before it. */
static inline const u8 *SCAN(string_end)(const u8 *p, const u8 *end, int *escaped) {
    for (;;) {
        SCAN(Mask) quote = SCAN(equal)(p, 0, '"'), slash = SCAN(equal)(p, 0, '\\');
        if (!(quote | slash)) {
            p += WIDTH;
            if (p >= end) return NULL;
            continue;
        }
        int at = SCAN(first)(quote | slash);
        p += at;
        if (p >= end) return NULL;
        if (*p == '"') return p;
        *escaped = 1;
        p += 2;
        if (p >= end) return NULL;
    }
}

/* Whether the text at p begins with the guess. */
static inline int SCAN(guessed)(const u8 *p, const Guess *g) {
#if defined(SCAN_AVX2)
    __m256i same = _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)p),
                                     _mm256_loadu_si256((const __m256i *)g->text));
    return ((uint32_t)_mm256_movemask_epi8(same) & g->mask) == g->mask;
#else
    int at = 0;
    for (; at + 8 <= g->length; at += 8)
        if (load64(p + at) != load64(g->text + at)) return 0;
    return ((load64(p + at) ^ load64(g->text + at)) & g->last) == 0;
#endif
}
