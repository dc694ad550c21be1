/* Feeds anything to the compiled core: no crash, no leak, no undefined behaviour, bounded memory, and the same
 * result however the input is cut into chunks and whichever instructions read it.
 *
 * With clang:  -fsanitize=fuzzer,address,undefined   coverage-guided, see README.md
 * With gcc:    -fsanitize=address,undefined -DSTANDALONE   mutates a few seeds at random
 */
#include <stdio.h>

#include "../../profiler/_core.c"

typedef ptrdiff_t (*Kernel)(const Arrays *);

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);   \
            abort();                                                          \
        }                                                                     \
    } while (0)

/* Stand-ins for the Python side: they read all they are given and answer at random lengths. */
static Status clean_text(const Question *q) {
    Tokens *t = q->tokens;
    if (tokens_answer(t, q->text, q->n) != OK) return NO_MEMORY;
    for (size_t i = 0; i < q->n; i++)
        if (q->text[i] >= 0x80 || q->text[i] < 0x20) t->clean.data[i] = '?';
    return OK;
}

static Status repair(const Question *q) {
    static const char event[] = "{\"ph\":\"X\",\"name\":\"mended\",\"ts\":1,\"args\":{\"a\":[1]}}";
    CHECK(q->n > 0);
    *q->skip = 0;
    for (size_t i = 1; i + 1 < q->n; i++) /* the next opening brace, wherever it is */
        if (q->text[i] == '{' && q->text[i + 1] == '"') {
            *q->skip = i;
            break;
        }
    if (*q->skip == 0 && q->final) *q->skip = q->n;
    return tokens_answer(q->tokens, (const u8 *)event, *q->skip % 3 == 0 ? sizeof event - 1 : 0);
}

static Status ask(const Question *q) {
    CHECK(q->offset >= 0);
    return q->skip ? repair(q) : clean_text(q);
}

static size_t held(const Tokens *t) {
    size_t total = 0;
    for (int i = 0; i < COLUMNS; i++)
        if (t->column[i]) total += (i < EVENT_COLUMNS ? t->row_room : i < COL_WIDE ? t->arg_room : t->wide_room) * column_size[i];
    const Table *tables[] = {&t->strings, &t->keys, &t->odd, &t->threads};
    for (int i = 0; i < 4; i++)
        total += tables[i]->bytes.room + tables[i]->texts.room + ((size_t)tables[i]->mask + 1) * 4;
    return total + t->carry.room + t->clean.room + t->mended.room + t->spill.room;
}

typedef struct {
    size_t rows, args;
    int32_t strings;
    int done;
    uint64_t sum;
} Outcome;

/* Codes depend on the order of first sight, which damage changes; texts, numbers and counts do not. */
static Outcome outcome_of(const Tokens *t) {
    Outcome o = {t->rows, t->args, t->strings.count, t->done, 0};
    for (size_t i = 0; i < t->rows; i++) {
        if (t->column[COL_TS]) o.sum = fold(o.sum ^ (uint64_t)((int64_t *)t->column[COL_TS])[i], 0x9e3779b97f4a7c15u);
        if (t->column[COL_PH]) o.sum ^= ((u8 *)t->column[COL_PH])[i];
        int32_t name = t->column[COL_NAME] ? ((int32_t *)t->column[COL_NAME])[i] : -1;
        CHECK(name >= -1 && name < t->strings.count);
        int32_t thread = t->column[COL_THREAD] ? ((int32_t *)t->column[COL_THREAD])[i] : -1;
        CHECK(thread >= -1 && thread < t->threads.count);
        if (thread >= 0) o.sum = fold(o.sum ^ text_hash(t->threads.bytes.data + 16 * (size_t)thread, 16, 7), i + 1);
        const int32_t *args_from = t->column[COL_ARGS_FROM];
        CHECK(!args_from || (args_from[i] >= (i ? args_from[i - 1] : 0) && (size_t)args_from[i] <= t->args));
        if (args_from) o.sum += (uint64_t)args_from[i] * (i + 1);
        if (name >= 0)
            o.sum ^= text_hash(t->strings.bytes.data + text_of(&t->strings, name)->start, text_of(&t->strings, name)->n, 7);
    }
    size_t wide = 0;
    for (size_t i = 0; i < t->args; i++) {
        int tag = ((u8 *)t->column[COL_ARG_TAG])[i], key = ((uint16_t *)t->column[COL_ARG_KEY])[i];
        int64_t value = ((int32_t *)t->column[COL_ARG_VALUE])[i];
        CHECK(key < t->keys.count);
        if (tag == ARG_WIDE || tag == ARG_FLOAT || tag == ARG_SPILLED) {
            CHECK(value == (int64_t)wide++);
            value = ((int64_t *)t->column[COL_WIDE])[value];
        }
        if (tag == ARG_STRING || tag == ARG_JSON || tag == ARG_BIGINT)
            CHECK(value >= 0 && value < t->strings.count);
        else if (tag == ARG_SPILLED)
            CHECK((value >> 24) + (value & 0xffffff) <= t->spilled);
        else
            o.sum = fold(o.sum ^ (uint64_t)value, 0xbf58476d1ce4e5b9u);
    }
    CHECK(wide == t->wide);
    return o;
}

static Outcome tokenise(const u8 *data, size_t size, const char *isa, size_t chunk, size_t budget, int keep) {
    Tokens *t = tokens_new(0x1234567);
    CHECK(t);
    t->ask = ask;
    t->text_budget = budget;
    t->keep = keep;
    if (!tokens_choose(t, isa)) tokens_choose(t, "");
    tokens_begin(t, 0);
    for (size_t at = 0; at < size && !t->done; at += chunk) {
        size_t n = size - at < chunk ? size - at : chunk, used = 0;
        u8 *copy = malloc(n); /* so that a byte too far is noticed */
        CHECK(copy);
        memcpy(copy, data + at, n);
        Status status = tokens_feed(t, copy, n, &used);
        free(copy);
        CHECK(status <= BAD && used <= n);
    }
    if (!t->done) CHECK(tokens_finish(t) <= BAD);
    CHECK(held(t) <= 4 * size + ((size_t)64 << 20));
    Outcome o = outcome_of(t);
    if (keep)
        CHECK(t->strings.count == 0 || is_clean_text(t->strings.bytes.data, 0));
    else
        CHECK(t->strings.count == 0 && t->args == 0);
    for (int i = 0; i < COLUMNS; i++) { /* given away whole, and ours then */
        size_t bytes = 0;
        u8 *column = tokens_take(t, i, &bytes);
        CHECK(bytes % column_size[i] == 0 && !t->column[i]);
        for (size_t k = 0; column && k < bytes; k++) column[k] = 0;
        core_free(column);
    }
    tokens_free(t);
    return o;
}

/* Items of `kind` as kernels.py hands them over, from the input's bytes; indices from -1 to below `below` if that is
 * not 0, else small numbers, which collide more often, and the ends of the range. */
static void array(Arrays *a, const u8 **data, size_t *size, char kind, size_t items, size_t below) {
    size_t item_size = kind == 'q' ? 8 : kind == 'i' ? 4 : kind == 'h' ? 2 : 1;
    u8 *memory = malloc(items * item_size + 1);
    CHECK(memory);
    for (size_t i = 0; i < items; i++) {
        int64_t v = *size ? (int8_t)**data : 0;
        if (*size) (*data)++, (*size)--;
        if (below)
            v = (int64_t)((u8)v % (below + 1)) - 1;
        else if (v == -128 || v == 127)
            v = v < 0 ? INT64_MIN : INT64_MAX;
        int32_t narrow = (int32_t)v;
        uint16_t half = (uint16_t)v;
        if (kind == 'q') memcpy(memory + 8 * i, &v, 8);
        if (kind == 'i') memcpy(memory + 4 * i, &narrow, 4);
        if (kind == 'h') memcpy(memory + 2 * i, &half, 2);
        if (kind == 'b') memory[i] = v & 1;
    }
    a->at[a->count] = memory;
    a->length[a->count++] = items;
}

/* Pairs of a kind and a length: n, m, d both together, e and p one more than d and n, or a number. A capital letter asks for
 * indices of rows: N below n, M below m. */
static const struct {
    Kernel kernel;
    const char *arrays;
    int more_fits; /* the last array may be longer */
} all_kernels[] = {
    {kernel_nest, "in qn qn in in qn qn", 0},
    {kernel_union, "qn qn qn qn", 1},
    {kernel_covered, "qm qm qn qn in qn", 0},
    {kernel_covered, "qm qm qn qn i0 qn", 0},
    {kernel_join, "q1 qn qm im", 0},
    {kernel_group, "qn qn in in", 1},
    {kernel_inherit, "iN bn in", 0},
    {kernel_cut, "qm qm im in qn qn qd qd id id qd", 0},
    {kernel_flatten, "iN iN qn qn qe id", 0},
    {kernel_order, "iM qm qm im", 0},
    {kernel_take_bytes, "bm iM bn", 0},
    {kernel_take_ints, "im iM in", 0},
    {kernel_take_longs, "qm iM qn", 0},
    {kernel_pick, "q2 ip hm bm im iN qn", 0},
    {kernel_replay, "qo qN qn qn qM qn qn qn qn qn qn qN qn qN qn qM qR qS qS qm qm qm qm qm qn qn qm qm", 0},
};

static size_t length_of(char c, size_t n, size_t m) {
    switch (c) {
    case 'n': case 'N': return n;
    case 'm': case 'S': case 'R': return m;
    case 'M': return n; /* of calls that point at ops */
    case 'd': return n + m;
    case 'e': return n + m + 1;
    case 'p': return n + 1;
    case 'o': return 2 * n + m;
    default: return (size_t)(c - '0');
    }
}

static void kernels(const u8 *data, size_t size) {
    if (size < 2) return;
    size_t which = data[0] % (sizeof all_kernels / sizeof *all_kernels), n = data[1] % 40, m = (data[1] * 7u) % 23;
    Kernel kernel = all_kernels[which].kernel;
    Arrays a = {.count = 0};
    data += 2, size -= 2;
    for (const char *c = all_kernels[which].arrays; *c; c += c[2] ? 3 : 2) {
        size_t items = kernel == kernel_order ? n : length_of(c[1], n, m);
        size_t below = c[1] == 'N' || c[1] == 'R' ? n : c[1] == 'M' || c[1] == 'S' ? m : 0;
        array(&a, &data, &size, c[0], items, below);
        int64_t *values = a.at[a.count - 1];
        for (size_t i = 0; i < items && c[1] == 'o'; i++) values[i] = (u8)values[i] % (3 * (n < m ? n : m) + 1);
    }
    CHECK(kernel(&a) >= KERNEL_MISMATCH);
    a.length[a.count - 1]++; /* a length that does not fit is refused */
    CHECK(all_kernels[which].more_fits || kernel(&a) == KERNEL_MISMATCH);
    for (int i = 0; i < a.count; i++) free(a.at[i]);
}

static uint64_t digest; /* of all outcomes, to compare machines */

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    if (size < 2) return 0;
    static const size_t chunks[] = {1, 3, 17, 64, 65, 100, 300, 5000};
    if (data[0] == 0xff) {
        kernels(data + 1, size - 1);
        return 0;
    }
    size_t chunk = chunks[data[0] & 7], budget = data[0] & 8 ? 100 : (size_t)1 << 27;
    Outcome whole = tokenise(data + 1, size - 1, "", size, budget, 1);
    Outcome cut = tokenise(data + 1, size - 1, data[0] & 16 ? "sse2" : "word", chunk, budget, 1);
    if (budget > 100 && memcmp(&whole, &cut, sizeof whole) != 0) {
        fprintf(stderr, "cut in pieces of %zu: %zu rows %zu args %d texts, whole: %zu rows %zu args %d texts\n", chunk,
                cut.rows, cut.args, cut.strings, whole.rows, whole.args, whole.strings);
        CHECK(whole.rows == cut.rows && whole.sum == cut.sum && whole.args == cut.args);
    }
    digest = digest * 31 + whole.sum + whole.rows * 7 + whole.args;
    if (data[0] & 32) tokenise(data + 1, size - 1, "", chunk, budget, 0);
    return 0;
}

#if defined(STANDALONE)
static const char *const seeds[] = {
    "\x05{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":1,\"tid\":\"stream 7\",\"ts\":1000.5,\"dur\":5.25,"
    "\"args\":{\"External id\":12,\"Input Dims\":[[1,2],[3]],\"s\":\"t\\\"\\u00e9\",\"f\":0.125,\"o\":{\"a\":[{\"b\":null}]}}},\n"
    "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"args\":{\"name\":\"python\"}}]tail",
    "\x03\n  {\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\\\\x\", \"pid\": 0, \"tid\": 7,\n    \"ts\": "
    "1736405443871413.640, \"dur\": 12,\n    \"args\": {\n      \"correlation\": 18446744073709551616, \"x\": 1e-5, "
    "\"y\": true\n    }\n  },\n  {},null,\"text\",[1,[2]],-1.5e3\n  ]",
    "\x21{\"ph\":\"b\",\"id\":\"0x1\",\"id2\":{\"local\":\"0x2\"},\"ts\":\"1060.0\"},{\"ph\":\"C\",\"ts\":nan,tid\":0},{\"ph\":3}",
    "\xff\x01\x20" "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
    "\xff\x0d\x05" "\x01\x02\x04\x05\x07\x08\x0a\x01\x03\x02\x01\x01\x02\x03\x02\x01\x02\x03\x04\x05",
};

static uint64_t state = 88172645463325252u;
static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

int main(int argc, char **argv) {
    static const char special[] = "\"\\{}[],:\n 0-.eEn\xff\x80t";
    long rounds = argc > 1 ? atol(argv[1]) : 10000;
    u8 buffer[4096];
    for (long round = 0; round < rounds; round++) {
        const char *seed = seeds[next_random() % (sizeof seeds / sizeof *seeds)];
        size_t size = strlen(seed);
        memcpy(buffer, seed, size);
        for (uint64_t edits = next_random() % 6; edits > 0; edits--) {
            size_t at = next_random() % size, n = next_random() % 40;
            switch (next_random() % 5) {
            case 0: buffer[at] = (u8)special[next_random() % (sizeof special - 1)]; break;
            case 1: buffer[at] = (u8)next_random(); break;
            case 2: /* drop a piece */
                n = n < size - at ? n : size - at - 1;
                memmove(buffer + at, buffer + at + n, size - at - n);
                size -= n;
                break;
            case 3: /* repeat a piece */
                n = n < size - at ? n : size - at;
                if (size + n > sizeof buffer) break;
                memmove(buffer + at + n, buffer + at, size - at);
                size += n;
                break;
            default: size = at > 2 ? at : 2; /* cut */
            }
        }
        LLVMFuzzerTestOneInput(buffer, size);
    }
    printf("%ld inputs, digest %016llx\n", rounds, (unsigned long long)digest);
    return 0;
}
#endif
