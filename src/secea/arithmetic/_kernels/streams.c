/* Key streams, noise and fill; see streams.h for what the functions do. Compiled after kernels.c, whose arithmetic it uses.
 *
 * A tile of words is made by AES and worked on while it is in the first-level cache. Words that are not below the prime
 * are rare: a loop adds them like the others and says that there were some; then they are replaced. */

#include "streams.h"

#define WORDS_BYTES 4096
#define WORDS32 (WORDS_BYTES / 4)
#define WORDS64 (WORDS_BYTES / 8)
#define BLOCKS (WORDS_BYTES / 16)
#define GROUP_BLOCKS 16 /* blocks are made in whole groups: buffers have room for one more */
#define KEYS_AT_ONCE 64

typedef struct {
    _Alignas(16) uint8_t round[15][16];
} schedule;

typedef union {
    _Alignas(64) uint8_t byte[WORDS_BYTES + 16 * GROUP_BLOCKS];
    uint32_t word[WORDS32 + 4 * GROUP_BLOCKS];
    uint64_t pair[WORDS64 + 2 * GROUP_BLOCKS];
} tile;

/* ------------------------------------------------------------------------------------------------------------- AES */

#ifdef AESNI
#define EACH(count) _Pragma("GCC unroll 8") for (int v = 0; v < (count); v++)

int aes_level(void) { return has_aes; }

AESNI static inline __m128i spread(__m128i x) { /* each word, and all those before it */
    x = _mm_xor_si128(x, _mm_slli_si128(x, 4));
    return _mm_xor_si128(x, _mm_slli_si128(x, 8));
}

/* The last round of AES without a key, on four equal words, is the S-box alone: rows that are shifted do not differ. */
AESNI static void expand(const uint8_t *key, schedule *plan) {
    const __m128i turned = _mm_set1_epi32(0x0C0F0E0D);
    __m128i even = _mm_loadu_si128((const __m128i *)key), odd = _mm_loadu_si128((const __m128i *)(key + 16));
    __m128i *const at = (__m128i *)plan->round;
    at[0] = even, at[1] = odd;
    for (int i = 1; i <= 7; i++) {
        const __m128i constant = _mm_set1_epi32(1 << (i - 1));
        even = _mm_xor_si128(spread(even), _mm_aesenclast_si128(_mm_shuffle_epi8(odd, turned), constant));
        at[2 * i] = even;
        if (i == 7) break;
        odd = _mm_xor_si128(spread(odd), _mm_aesenclast_si128(_mm_shuffle_epi32(even, 0xFF), _mm_setzero_si128()));
        at[2 * i + 1] = odd;
    }
}

/* `in` are the blocks to encrypt; where it is NULL they are counter blocks: `head`, then a number from `first` on. */
AESNI static void encrypt_aesni(const schedule *plan, const uint8_t *in, uint64_t head, uint64_t first, uint8_t *out,
                                size_t blocks) {
    const __m128i *const key = (const __m128i *)plan->round;
    for (size_t done = 0; done < blocks; done += 8) {
        __m128i x[8];
        EACH(8) {
            const uint64_t number = __builtin_bswap64(first + done + (size_t)v);
            x[v] = _mm_set_epi64x((int64_t)number, (int64_t)head);
            if (in) x[v] = _mm_loadu_si128((const __m128i *)(in + 16 * done) + v);
            x[v] = _mm_xor_si128(x[v], key[0]);
        }
        for (int r = 1; r < 14; r++) EACH(8) x[v] = _mm_aesenc_si128(x[v], key[r]);
        EACH(8) _mm_storeu_si128((__m128i *)(out + 16 * done) + v, _mm_aesenclast_si128(x[v], key[14]));
    }
}

VAES256 static void encrypt_vaes256(const schedule *plan, const uint8_t *in, uint64_t head, uint64_t first, uint8_t *out,
                                    size_t blocks) {
    const __m256i big_endian =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 15, 14, 13, 12, 11, 10, 9, 8));
    const __m256i two = _mm256_setr_epi64x(0, 2, 0, 2);
    const int64_t start = (int64_t)head, next = (int64_t)(first + 1);
    __m256i number = _mm256_setr_epi64x(start, (int64_t)first, start, next), key[15];
    for (int r = 0; r < 15; r++) key[r] = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)plan->round[r]));
    for (size_t done = 0; done < blocks; done += 16) {
        __m256i x[8];
        EACH(8) {
            if (in) x[v] = _mm256_loadu_si256((const __m256i *)(in + 16 * done) + v);
            else {
                x[v] = _mm256_shuffle_epi8(number, big_endian);
                number = _mm256_add_epi64(number, two);
            }
            x[v] = _mm256_xor_si256(x[v], key[0]);
        }
        _Pragma("GCC unroll 13") for (int r = 1; r < 14; r++) EACH(8) x[v] = _mm256_aesenc_epi128(x[v], key[r]);
        EACH(8) _mm256_storeu_si256((__m256i *)(out + 16 * done) + v, _mm256_aesenclast_epi128(x[v], key[14]));
    }
}

VAES512 static void encrypt_vaes512(const schedule *plan, const uint8_t *in, uint64_t head, uint64_t first, uint8_t *out,
                                    size_t blocks) {
    const __m512i big_endian =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 15, 14, 13, 12, 11, 10, 9, 8));
    const __m512i four = _mm512_set1_epi64(4), steps = _mm512_setr_epi64(0, 0, 0, 1, 0, 2, 0, 3);
    __m512i number = _mm512_set1_epi64((int64_t)head); /* and in every second half the number of the block */
    number = _mm512_mask_add_epi64(number, 0xAA, _mm512_set1_epi64((int64_t)first), steps);
    __m512i key[15];
    for (int r = 0; r < 15; r++) key[r] = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)plan->round[r]));
    for (size_t done = 0; done < blocks; done += 16) {
        __m512i x[4];
        EACH(4) {
            if (in) x[v] = _mm512_loadu_si512(in + 16 * done + 64 * (size_t)v);
            else {
                x[v] = _mm512_shuffle_epi8(number, big_endian);
                number = _mm512_mask_add_epi64(number, 0xAA, number, four);
            }
            x[v] = _mm512_xor_si512(x[v], key[0]);
        }
        _Pragma("GCC unroll 13") for (int r = 1; r < 14; r++) EACH(4) x[v] = _mm512_aesenc_epi128(x[v], key[r]);
        EACH(4) _mm512_storeu_si512(out + 16 * done + 64 * (size_t)v, _mm512_aesenclast_epi128(x[v], key[14]));
    }
}

static inline void encrypt(int level, const schedule *plan, const uint8_t *in, uint64_t head, uint64_t first,
                           uint8_t *out, size_t blocks) {
    (level > 2 ? encrypt_vaes512 : level > 1 ? encrypt_vaes256 : encrypt_aesni)(plan, in, head, first, out, blocks);
}
#else /* there is no level above 0, so that none of these is called */
int aes_level(void) { return 0; }

static void expand(const uint8_t *key, schedule *plan) {
    (void)key, (void)plan;
    abort();
}

static void encrypt(int level, const schedule *plan, const uint8_t *in, uint64_t head, uint64_t first, uint8_t *out,
                    size_t blocks) {
    (void)level, (void)plan, (void)in, (void)head, (void)first, (void)out, (void)blocks;
    abort();
}
#endif

/* The first half of a counter block, as it lies in memory. */
static inline uint64_t head_of(uint32_t lane, size_t prime, unsigned retry) {
    const uint32_t bytes = lane >> 24 | (lane >> 8 & 0xFF00) | (lane << 8 & 0xFF0000) | lane << 24;
    return bytes | (uint64_t)prime << 32 | (uint64_t)retry << 40;
}

/* --------------------------------------------------------------------------------------------------------- elements */

#define RETRY_STEP (UINT64_C(1) << 40)

/* In place of a word of this block that was rejected: the same word of the next retries. */
static uint64_t replaced(int level, const schedule *plan, uint64_t head, uint64_t block, size_t at, size_t bytes,
                         int spare, uint64_t least, uint64_t p) {
    for (int retry = 1; retry < 256; retry++) {
        tile words;
        encrypt(level, plan, NULL, head += RETRY_STEP, block, words.byte, 1);
        const uint64_t word = (bytes == 8 ? words.pair[at] : words.word[at]) >> spare;
        if (word >= least && word < p) return word;
    }
    return least; /* not in the lifetime of this universe */
}

/* out = the words, cut; whether one is not in [least, p) */
FAST static int cut_words32(uint32_t p, uint32_t least, int spare, uint32_t *out, const uint32_t *words, size_t n) {
    const uint32_t range = p - least;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t x = words[i] >> spare;
        bad |= x - least >= range;
        out[i] = x;
    }
    return bad != 0;
}

INLINED int cut_words(unsigned bits, uint64_t least, uint64_t *out, const uint64_t *words, size_t n) {
    uint64_t above = 0; /* x + c and x - least have a bit above the lowest ones if x is too large, or too small */
    for (size_t i = 0; i < n; i++) {
        const uint64_t x = words[i] >> (64 - bits);
        above |= (x + C64(bits)) | (x - least);
        out[i] = x;
    }
    return above >> bits != 0;
}

FAST static int cut_words64(unsigned bits, uint64_t least, uint64_t *out, const uint64_t *words, size_t n) {
    return BOTH(bits, cut_words, least, out, words, n);
}

/* n elements from `block` on, at most a tile */
static void draw32(int level, const schedule *plan, uint64_t head, uint64_t block, uint32_t p, uint32_t least,
                   uint32_t *out, size_t n) {
    tile words;
    const int spare = spare_bits(p);
    encrypt(level, plan, NULL, head, block, words.byte, (n + 3) / 4);
    if (cut_words32(p, least, spare, out, words.word, n))
        for (size_t i = 0; i < n; i++)
            if (out[i] < least || out[i] >= p)
                out[i] = (uint32_t)replaced(level, plan, head, block + i / 4, i % 4, 4, spare, least, p);
}

static void draw64(int level, const schedule *plan, uint64_t head, uint64_t block, unsigned bits, uint64_t least,
                   uint64_t *out, size_t n) {
    tile words;
    encrypt(level, plan, NULL, head, block, words.byte, (n + 1) / 2);
    if (cut_words64(bits, least, out, words.pair, n))
        for (size_t i = 0; i < n; i++)
            if (out[i] < least || out[i] >= P64(bits))
                out[i] = replaced(level, plan, head, block + i / 2, i % 2, 8, 64 - (int)bits, least, P64(bits));
}

void row_streams32(int level, const uint32_t *primes, size_t count, uint32_t *out, const uint8_t *keys, size_t rows,
                   size_t length, uint32_t lane, uint32_t least) {
    for (size_t row = 0; row < rows; row++) {
        schedule plan;
        expand(keys + 32 * row, &plan);
        for (size_t b = 0; b < count; b++)
            for (size_t i = 0; i < length; i += WORDS32)
                draw32(level, &plan, head_of(lane, b, 0), i / 4, primes[b], least, out + (b * rows + row) * length + i,
                       length - i < WORDS32 ? length - i : WORDS32);
    }
}

void row_streams64(int level, unsigned bits, uint64_t *out, const uint8_t *keys, size_t rows, size_t length, uint32_t lane,
                   uint64_t least) {
    for (size_t row = 0; row < rows; row++) {
        schedule plan;
        expand(keys + 32 * row, &plan);
        for (size_t i = 0; i < length; i += WORDS64)
            draw64(level, &plan, head_of(lane, 0, 0), i / 2, bits, least, out + row * length + i,
                   length - i < WORDS64 ? length - i : WORDS64);
    }
}

/* ------------------------------------------------------------------------------------------------------------ masks */

/* Sums of words stay unreduced while they fit: an element and three words below 2^30 in 32 bits, an element and seven words
 * below 2^61, or 255 below 2^56, in 64. The sum of what is subtracted comes first, onto minus the element; then its sign is
 * changed. */
#define LIGHT_HELD 3
#define HELD64(bits) (((size_t)1 << (64 - (bits))) - 1)

/* sum += the words, cut; whether one of them is not below p */
FAST static int add_words_light(uint32_t p, uint32_t *sum, const uint32_t *words, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t x = words[i] >> 2;
        bad |= x >= p;
        sum[i] += x;
    }
    return bad != 0;
}

FAST static void close_light(uint32_t p, uint32_t *sum, size_t n) { /* sum < 4p */
    for (size_t i = 0; i < n; i++) {
        const uint32_t once = sum[i] >= 2 * p ? sum[i] - 2 * p : sum[i];
        sum[i] = once >= p ? once - p : once;
    }
}

FAST static void negate_light(uint32_t p, uint32_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = x[i] ? p - x[i] : 0;
}

INLINED int add_words(unsigned bits, uint64_t *sum, const uint64_t *words, size_t n) {
    uint64_t above = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t x = words[i] >> (64 - bits);
        above |= x + C64(bits);
        sum[i] += x;
    }
    return above >> bits != 0;
}

INLINED void close_sums(unsigned bits, uint64_t *sum, size_t n) {
    for (size_t i = 0; i < n; i++) sum[i] = below_p64(bits, fold64(bits, sum[i]));
}

FAST static int add_words64(unsigned bits, uint64_t *sum, const uint64_t *words, size_t n) {
    return BOTH(bits, add_words, sum, words, n);
}

FAST static void close64(unsigned bits, uint64_t *sum, size_t n) { BOTH(bits, close_sums, sum, n); }

FAST static void negate64(unsigned bits, uint64_t *x, size_t n) {
    const uint64_t p = P64(bits);
    for (size_t i = 0; i < n; i++) x[i] = x[i] ? p - x[i] : 0;
}

static void mask_tile_light(int level, const schedule *plans, size_t negative, size_t total, uint64_t head,
                            uint64_t block, uint32_t p, uint32_t *sum, size_t n) {
    tile words;
    if (negative) negate_light(p, sum, n);
    for (size_t k = 0, held = 0; k < total; k++) {
        encrypt(level, plans + k, NULL, head, block, words.byte, (n + 3) / 4);
        if (add_words_light(p, sum, words.word, n)) {
            uint32_t x[WORDS32];
            draw32(level, plans + k, head, block, p, 0, x, n);
            for (size_t i = 0; i < n; i++) sum[i] -= (words.word[i] >> 2) - x[i];
        }
        const int turns = k + 1 == negative;
        if (++held < LIGHT_HELD && !turns && k + 1 < total) continue;
        close_light(p, sum, n), held = 0;
        if (turns) negate_light(p, sum, n);
    }
}

static void mask_tile64(int level, const schedule *plans, size_t negative, size_t total, uint64_t head, uint64_t block,
                        unsigned bits, uint64_t *sum, size_t n) {
    tile words;
    if (negative) negate64(bits, sum, n);
    for (size_t k = 0, held = 0; k < total; k++) {
        encrypt(level, plans + k, NULL, head, block, words.byte, (n + 1) / 2);
        if (add_words64(bits, sum, words.pair, n)) {
            uint64_t x[WORDS64];
            draw64(level, plans + k, head, block, bits, 0, x, n);
            for (size_t i = 0; i < n; i++) sum[i] -= (words.pair[i] >> (64 - bits)) - x[i];
        }
        const int turns = k + 1 == negative;
        if (++held < HELD64(bits) && !turns && k + 1 < total) continue;
        close64(bits, sum, n), held = 0;
        if (turns) negate64(bits, sum, n);
    }
}

static void mask_tile_any(int level, const schedule *plans, size_t negative, size_t total, uint64_t head,
                          uint64_t block, uint32_t p, uint32_t *acc, size_t n) {
    uint32_t x[WORDS32];
    for (size_t k = 0; k < total; k++) {
        draw32(level, plans + k, head, block, p, 0, x, n);
        (k < negative ? sub_one : add_one)(p, acc, x, n);
    }
}

void add_streams32(int level, const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, size_t n,
                   const uint8_t *keys, size_t negative, size_t total, uint32_t lane) {
    schedule plans[KEYS_AT_ONCE];
    for (size_t first = 0; first < total; first += KEYS_AT_ONCE) {
        const size_t some = total - first < KEYS_AT_ONCE ? total - first : KEYS_AT_ONCE;
        const size_t minus = negative < first ? 0 : negative - first < some ? negative - first : some;
        for (size_t k = 0; k < some; k++) expand(keys + 32 * (first + k), plans + k);
        for (size_t b = 0; b < count; b++)
            for (size_t i = 0; i < n; i += WORDS32)
                (LIGHT(primes[b]) ? mask_tile_light : mask_tile_any)(level, plans, minus, some, head_of(lane, b, 0), i / 4,
                                                                     primes[b], acc + b * acc_step + i,
                                                                     n - i < WORDS32 ? n - i : WORDS32);
    }
}

void add_streams64(int level, unsigned bits, uint64_t *acc, size_t n, const uint8_t *keys, size_t negative, size_t total,
                   uint32_t lane) {
    schedule plans[KEYS_AT_ONCE];
    for (size_t first = 0; first < total; first += KEYS_AT_ONCE) {
        const size_t some = total - first < KEYS_AT_ONCE ? total - first : KEYS_AT_ONCE;
        const size_t minus = negative < first ? 0 : negative - first < some ? negative - first : some;
        for (size_t k = 0; k < some; k++) expand(keys + 32 * (first + k), plans + k);
        for (size_t i = 0; i < n; i += WORDS64)
            mask_tile64(level, plans, minus, some, head_of(lane, 0, 0), i / 2, bits, acc + i,
                        n - i < WORDS64 ? n - i : WORDS64);
    }
}

/* ------------------------------------------------------------------------------------------------------------ noise */

/* The sum of s numbers with digits x_0, x_1, ... is that of their digits X_0, X_1, ..., so that by Horner's rule the noise is
 * X_0 + d_0 * (X_1 + d_1 * (... + d_last * t)). */
typedef struct {
    size_t s, parts, blocks, piece, most; /* `piece` elements in a tile of words, `most` of noise */
    const uint32_t *digits;
    uint64_t wide_range;
} noise_shape;

typedef struct {
    uint32_t digit[WORDS32]; /* X_0 of all elements, then X_1 of all, ... */
    uint64_t t[BLOCKS], all[BLOCKS];
} noise_tile;

static void shape_noise(noise_shape *shape, size_t s, const uint32_t *digits, size_t parts, uint64_t wide_range) {
    shape->s = s, shape->parts = parts, shape->digits = digits, shape->wide_range = wide_range;
    shape->blocks = (s * parts + 5) / 4, shape->piece = BLOCKS / shape->blocks;
    const size_t room = parts * BLOCKS > WORDS32 ? WORDS32 / parts : BLOCKS; /* piece * parts <= WORDS32 / s */
    shape->most = room / shape->piece * shape->piece;
}

/* The words of one digit lie apart, but all digits of a number side by side: eight of them are scaled and added at once. What is
 * read after the last digit counts 0 times, and the tile goes on after the last word. */
#define DIGITS 8

FAST static void sum_some_digits(const noise_shape *shape, const uint32_t *words, uint32_t *digits, size_t apart,
                                 size_t first, size_t n) {
    const size_t parts = shape->parts, step = 4 * shape->blocks, some = parts - first < DIGITS ? parts - first : DIGITS;
    uint32_t factor[DIGITS] = {0};
    memcpy(factor, shape->digits + first, some * sizeof *factor);
    for (size_t i = 0; i < n; i++, words += step) {
        uint64_t sum[DIGITS] = {0};
        for (size_t k = first; k < shape->s * parts; k += parts)
            for (size_t l = 0; l < DIGITS; l++) sum[l] += (uint64_t)words[k + l] * factor[l] >> 32;
        for (size_t l = 0; l < some; l++) digits[(first + l) * apart + i] = (uint32_t)sum[l];
    }
}

/* (a * b) >> 64 by halves of 32 bits, which many elements have done side by side */
static inline uint64_t high_by_halves(uint64_t a, uint64_t b) {
    const uint64_t a1 = a >> 32, a0 = (uint32_t)a, b1 = b >> 32, b0 = (uint32_t)b;
    const uint64_t one = a1 * b0 + (a0 * b0 >> 32), two = a0 * b1 + (uint32_t)one; /* neither overflows */
    return a1 * b1 + (one >> 32) + (two >> 32);
}

static inline uint64_t scaled_halves(uint64_t x, uint32_t digit) {
    return ((uint64_t)(uint32_t)x * digit >> 32) + ((x >> 32) * digit >> 32);
}

/* Six numbers of one digit, by far the most frequent: an element is four pairs of words. */
FAST static void draw_six(const uint64_t *pairs, uint32_t digit, uint64_t wide_range, uint32_t *digits, uint64_t *t,
                          size_t n) {
    for (size_t i = 0; i < n; i++, pairs += 4) {
        digits[i] = (uint32_t)(scaled_halves(pairs[0], digit) + scaled_halves(pairs[1], digit) +
                               scaled_halves(pairs[2], digit));
        t[i] = high_by_halves(pairs[3], wide_range);
    }
}

/* A tile of words: its elements, of whose digits `apart` lie between one and the next */
static void draw_piece(int level, const noise_shape *shape, const schedule *plan, uint64_t head, size_t first,
                       uint32_t *digits, size_t apart, uint64_t *t, size_t n) {
    tile words;
    const size_t step = 4 * shape->blocks;
    encrypt(level, plan, NULL, head, first * shape->blocks, words.byte, n * shape->blocks);
    if (shape->parts == 1 && shape->s == 6) {
        draw_six(words.pair, shape->digits[0], shape->wide_range, digits, t, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t *const z = words.word + i * step + shape->s * shape->parts;
        t[i] = high_half(times(z[0] | (uint64_t)z[1] << 32, shape->wide_range));
    }
    for (size_t l = 0; l < shape->parts; l += DIGITS) sum_some_digits(shape, words.word, digits, apart, l, n);
}

static void draw_noise(int level, const noise_shape *shape, const schedule *plan, uint64_t head, size_t first,
                       noise_tile *out, size_t n) {
    for (size_t i = 0; i < n; i += shape->piece)
        draw_piece(level, shape, plan, head, first + i, out->digit + i, n, out->t + i,
                   n - i < shape->piece ? n - i : shape->piece);
}

FAST static void join_digits(const noise_shape *shape, noise_tile *x, size_t n) { /* below 2^63 */
    memcpy(x->all, x->t, n * sizeof *x->t);
    for (size_t l = shape->parts; l-- > 0;)
        for (size_t i = 0; i < n; i++) x->all[i] = x->all[i] * shape->digits[l] + x->digit[l * n + i];
}

static inline uint32_t rest32(uint64_t x, uint32_t p) {
    return LIGHT(p) ? folded_light(x, p) : FULL(p) ? folded(x, 0u - p) : (uint32_t)(x % p);
}

FAST static void reduce_light(uint32_t p, uint64_t *x, const uint64_t *from, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = folded_light(from[i], p);
}

/* Two digits at a time: x < 2^30, each of the bases < 2^16. */
FAST static void horner_light(uint32_t p, uint64_t *x, uint32_t low_base, uint32_t high_base, const uint32_t *low,
                              const uint32_t *high, size_t n) {
    const uint32_t base = low_base * high_base;
    for (size_t i = 0; i < n; i++)
        x[i] = folded_light((uint64_t)(uint32_t)x[i] * base + (uint64_t)high[i] * low_base + low[i], p);
}

FAST static void horner_once_light(uint32_t p, uint64_t *x, uint32_t base, const uint32_t *added, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = folded_light((uint64_t)(uint32_t)x[i] * base + added[i], p);
}

static void join_digits32(const noise_shape *shape, noise_tile *x, uint32_t p, size_t n) { /* modulo p */
    if (LIGHT(p)) {
        reduce_light(p, x->all, x->t, n);
        size_t l = shape->parts;
        const uint32_t *const base = shape->digits, *const digit = x->digit;
        for (; l > 1; l -= 2)
            horner_light(p, x->all, base[l - 2], base[l - 1], digit + (l - 2) * n, digit + (l - 1) * n, n);
        if (l) horner_once_light(p, x->all, base[0], digit, n);
        return;
    }
    for (size_t i = 0; i < n; i++) x->all[i] = rest32(x->t[i], p);
    for (size_t l = shape->parts; l-- > 0;)
        for (size_t i = 0; i < n; i++) x->all[i] = rest32(x->all[i] * shape->digits[l] + x->digit[l * n + i], p);
}

static void join_digits64(const noise_shape *shape, noise_tile *x, unsigned bits, size_t n) {
    memcpy(x->all, x->t, n * sizeof *x->t);
    for (size_t l = shape->parts; l-- > 0;)
        for (size_t i = 0; i < n; i++) {
            const wide next = plus(times(x->all[i], shape->digits[l]), both(0, x->digit[l * n + i]));
            x->all[i] = BOTH(bits, reduced64, next);
        }
}

FAST static void add_light(uint32_t p, uint32_t *acc, const uint64_t *x, size_t n) { /* x < 2^63 */
    for (size_t i = 0; i < n; i++) acc[i] = folded_light(x[i] + acc[i], p);
}

INLINED void add_any(unsigned bits, uint64_t *acc, const uint64_t *x, size_t n) { /* x < 2^63 */
    for (size_t i = 0; i < n; i++) acc[i] = below_p64(bits, fold64(bits, acc[i] + fold64(bits, x[i])));
}

FAST static void add_any64(unsigned bits, uint64_t *acc, const uint64_t *x, size_t n) { BOTH(bits, add_any, acc, x, n); }

void add_noise32(int level, const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, size_t n,
                 const uint8_t *seed, uint32_t lane, size_t s, const uint32_t *digits, size_t parts, uint64_t wide_range,
                 int fits) {
    schedule plan;
    noise_shape shape;
    noise_tile noise;
    expand(seed, &plan);
    shape_noise(&shape, s, digits, parts, wide_range);
    for (size_t start = 0; start < n; start += shape.most) {
        const size_t size = n - start < shape.most ? n - start : shape.most;
        draw_noise(level, &shape, &plan, head_of(lane, 0, 0), start, &noise, size);
        if (fits) join_digits(&shape, &noise, size);
        for (size_t b = 0; b < count; b++) {
            const uint32_t p = primes[b];
            uint32_t *const to = acc + b * acc_step + start;
            if (!fits) join_digits32(&shape, &noise, p, size);
            if (LIGHT(p)) add_light(p, to, noise.all, size);
            else for (size_t i = 0; i < size; i++) to[i] = (uint32_t)((noise.all[i] + to[i]) % p);
        }
    }
}

void add_noise64(int level, unsigned bits, uint64_t *acc, size_t n, const uint8_t *seed, uint32_t lane, size_t s,
                 const uint32_t *digits, size_t parts, uint64_t wide_range, int fits) {
    schedule plan;
    noise_shape shape;
    noise_tile noise;
    expand(seed, &plan);
    shape_noise(&shape, s, digits, parts, wide_range);
    for (size_t start = 0; start < n; start += shape.most) {
        const size_t size = n - start < shape.most ? n - start : shape.most;
        draw_noise(level, &shape, &plan, head_of(lane, 0, 0), start, &noise, size);
        if (fits) join_digits(&shape, &noise, size);
        else join_digits64(&shape, &noise, bits, size);
        add_any64(bits, acc + start, noise.all, size);
    }
}

/* ------------------------------------------------------------------------------------------------------------- rows */

/* Of light primes 16 sums side by side, folded once after every 15 products: what is left has 44 bits, and room for 15 more. */
#define SIDE 16

FAST static uint32_t weighted_light(uint32_t p, const uint32_t *x, const uint32_t *weights, size_t n) {
    const uint32_t c = 4 * (LOW30 + 1 - p);
    uint64_t sum[SIDE] = {0}, all = 0;
    size_t i = 0;
    while (i + SIDE <= n) {
        const size_t left = (n - i) / SIDE, stop = i + SIDE * (left < LIGHT_GROUP ? left : LIGHT_GROUP);
        for (; i < stop; i += SIDE)
            for (size_t k = 0; k < SIDE; k++) sum[k] += (uint64_t)x[i + k] * weights[i + k];
        for (size_t k = 0; k < SIDE; k++) sum[k] = fold(sum[k], c);
    }
    for (size_t k = 0; k < SIDE; k++) all += sum[k];
    all = folded_light(all, p);
    uint64_t rest = 0; /* at most 15 products */
    for (; i < n; i++) rest += (uint64_t)x[i] * weights[i];
    return folded_light(all + folded_light(rest, p), p);
}

FAST static uint32_t weighted_any(uint32_t p, const uint32_t *x, const uint32_t *weights, size_t n) {
    uint64_t low = 0, high = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t product = (uint64_t)x[i] * weights[i];
        low += (uint32_t)product, high += product >> 32;
    }
    return (uint32_t)(((high % p << 32) + low % p) % p);
}

void weighted_sums32(const uint32_t *primes, size_t count, uint32_t *out, const uint32_t *x, size_t x_step,
                     size_t row_step, const uint32_t *weights, size_t rows, size_t length) {
    for (size_t b = 0; b < count; b++)
        for (size_t row = 0; row < rows; row++)
            out[b * rows + row] = (LIGHT(primes[b]) ? weighted_light : weighted_any)(
                primes[b], x + b * x_step + row * row_step, weights + b * length, length);
}

static uint64_t weighted61(const uint64_t *x, const uint64_t *weights, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n;) { /* two sums side by side, together of as many products as fit */
        const size_t stop = n - i < PRODUCTS64(61) ? n : i + PRODUCTS64(61);
        wide even = both(0, sum), odd = both(0, 0);
        for (; i + 2 <= stop; i += 2) {
            even = plus(even, times(x[i], weights[i]));
            odd = plus(odd, times(x[i + 1], weights[i + 1]));
        }
        if (i < stop) odd = plus(odd, times(x[i], weights[i])), i++;
        sum = reduced64(61, plus(even, odd));
    }
    return sum;
}

/* By halves of 28 bits, of whose products 127 pairs fit into 64 bits: 16 sums side by side. */
#define HALF28(x) ((uint32_t)(x) & ((1u << 28) - 1))

FAST static uint64_t weighted56(const uint64_t *x, const uint64_t *weights, size_t n) {
    wide all = both(0, 0);
    for (size_t i = 0; i + SIDE <= n;) {
        const size_t left = (n - i) / SIDE, stop = i + SIDE * (left < 127 ? left : 127);
        uint64_t high[SIDE] = {0}, middle[SIDE] = {0}, low[SIDE] = {0};
        for (; i < stop; i += SIDE)
            for (size_t k = 0; k < SIDE; k++) {
                const uint32_t a1 = (uint32_t)(x[i + k] >> 28), a0 = HALF28(x[i + k]);
                const uint32_t b1 = (uint32_t)(weights[i + k] >> 28), b0 = HALF28(weights[i + k]);
                high[k] += (uint64_t)a1 * b1, low[k] += (uint64_t)a0 * b0;
                middle[k] += (uint64_t)a1 * b0 + (uint64_t)a0 * b1;
            }
        uint64_t one = 0, two = 0, three = 0;
        for (size_t k = 0; k < SIDE; k++)
            one += fold64(56, high[k]), two += fold64(56, middle[k]), three += fold64(56, low[k]);
        all = plus(all, plus(shifted_up(one, 56), plus(shifted_up(two, 28), both(0, three))));
        all = both(0, reduced64(56, all));
    }
    for (size_t i = n - n % SIDE; i < n; i++) all = plus(all, times(x[i], weights[i]));
    return reduced64(56, all);
}

void weighted_sums64(unsigned bits, uint64_t *out, const uint64_t *x, size_t row_step, const uint64_t *weights,
                     size_t rows, size_t length) {
    for (size_t row = 0; row < rows; row++)
        out[row] = (bits == 61 ? weighted61 : weighted56)(x + row * row_step, weights, length);
}

FAST static void scale_light(uint32_t p, uint32_t *out, const uint32_t *x, uint32_t factor, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = folded_light((uint64_t)x[i] * factor, p);
}

FAST static void scale_add_light(uint32_t p, uint32_t *out, const uint32_t *x, uint32_t factor, const uint32_t *added,
                                 size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = folded_light((uint64_t)x[i] * factor + added[i], p);
}

static void scale_row32(uint32_t p, uint32_t *out, const uint32_t *x, uint32_t factor, const uint32_t *added, size_t n) {
    if (!LIGHT(p)) for (size_t i = 0; i < n; i++) out[i] = rest32((uint64_t)x[i] * factor + (added ? added[i] : 0), p);
    else if (added) scale_add_light(p, out, x, factor, added, n);
    else scale_light(p, out, x, factor, n);
}

void scaled_rows32(const uint32_t *primes, size_t count, uint32_t *out, size_t out_step, size_t out_row_step,
                   const int64_t *places, const uint32_t *x, size_t x_step, size_t x_row_step, const uint32_t *factors,
                   const uint32_t *added, size_t rows, size_t length) {
    for (size_t b = 0; b < count; b++)
        for (size_t row = 0; row < rows; row++) {
            const size_t k = b * rows + row, to = places ? (size_t)places[row] : row;
            scale_row32(primes[b], out + b * out_step + to * out_row_step, x + b * x_step + row * x_row_step, factors[k],
                        added ? added + k * length : NULL, length);
        }
}

INLINED void scale_by(unsigned bits, uint64_t *out, const uint64_t *x, uint64_t factor, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = product_by_halves64(bits, x[i], factor, 0);
}

INLINED void scale_add(unsigned bits, uint64_t *out, const uint64_t *x, uint64_t factor, const uint64_t *added, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = product_by_halves64(bits, x[i], factor, added[i]);
}

FAST static void scale_row64(unsigned bits, uint64_t *out, const uint64_t *x, uint64_t factor, size_t n) {
    BOTH(bits, scale_by, out, x, factor, n);
}

FAST static void scale_add_row64(unsigned bits, uint64_t *out, const uint64_t *x, uint64_t factor, const uint64_t *added,
                                 size_t n) {
    BOTH(bits, scale_add, out, x, factor, added, n);
}

void scaled_rows64(unsigned bits, uint64_t *out, size_t out_row_step, const int64_t *places, const uint64_t *x,
                   size_t x_row_step, const uint64_t *factors, const uint64_t *added, size_t rows, size_t length) {
    for (size_t row = 0; row < rows; row++, x += x_row_step) {
        uint64_t *const to = out + (places ? (size_t)places[row] : row) * out_row_step;
        if (added) scale_add_row64(bits, to, x, factors[row], added + row * length, length);
        else scale_row64(bits, to, x, factors[row], length);
    }
}

FAST static void add_scaled_light(uint32_t p, uint32_t *acc, const int64_t *x, uint32_t factor, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t sign = (uint64_t)(x[i] >> 63), size = ((uint64_t)x[i] ^ sign) - sign;
        const uint32_t product = folded_light((uint64_t)folded_light(size, p) * factor, p);
        acc[i] = folded_light((uint64_t)acc[i] + (sign ? p - product : product), p);
    }
}

void add_scaled32(const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, const int64_t *x,
                  const uint32_t *factors, size_t n) {
    for (size_t b = 0; b < count; b++) {
        const uint32_t p = primes[b];
        uint32_t *const to = acc + b * acc_step;
        if (LIGHT(p)) add_scaled_light(p, to, x, factors[b], n);
        else for (size_t i = 0; i < n; i++) {
            const uint64_t size = x[i] < 0 ? 0 - (uint64_t)x[i] : (uint64_t)x[i];
            const uint32_t product = rest32((uint64_t)rest32(size, p) * factors[b], p);
            to[i] = rest32((uint64_t)to[i] + (x[i] < 0 ? p - product : product), p);
        }
    }
}

INLINED void add_multiples(unsigned bits, uint64_t *acc, const int64_t *x, uint64_t factor, size_t n) {
    const uint64_t other = factor ? P64(bits) - factor : 0; /* minus the factor */
    for (size_t i = 0; i < n; i++) {
        const uint64_t sign = (uint64_t)(x[i] >> 63), size = ((uint64_t)x[i] ^ sign) - sign;
        acc[i] = product_by_halves64(bits, fold64(bits, size), sign ? other : factor, acc[i]);
    }
}

FAST void add_scaled64(unsigned bits, uint64_t *acc, const int64_t *x, uint64_t factor, size_t n) {
    BOTH(bits, add_multiples, acc, x, factor, n);
}

/* ------------------------------------------------------------------------------------------------------------- fill */

/* Four fields for each number, of which those with a factor are narrow numbers. */
FAST static void add_narrow(uint64_t *narrow, const uint64_t *fields, const uint64_t factor[4], size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t one = fields[2 * i], two = fields[2 * i + 1];
        narrow[i] += ((one & UINT32_MAX) * factor[0] >> 32) + ((one >> 32) * factor[1] >> 32) +
                     ((two & UINT32_MAX) * factor[2] >> 32) + ((two >> 32) * factor[3] >> 32);
    }
}

/* The bits of the grids of numbers of one row, max(2^(e - used), step) but at most cap, e the exponent of the leading bit. Floats
 * that are not negative have the order of their bits. Powers of two below the normal floats are taken as 0: nothing is
 * filled there. */
FAST static void grids_of(const double *x, size_t n, int used, int64_t step, int64_t cap, uint64_t *grid) {
    for (size_t i = 0; i < n; i++) {
        int64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        const int64_t e = (bits >> 52 & 0x7FF) - used, own = e > 0 ? e << 52 : 0, floor = own < step ? step : own;
        grid[i] = (uint64_t)(floor > cap ? cap : floor);
    }
}

/* How many units a grid is wide; 0 if that is not above w. */
FAST static void units_of(const uint64_t *grid, size_t n, double scale, int64_t w, uint64_t *units) {
    for (size_t i = 0; i < n; i++) {
        double width;
        memcpy(&width, grid + i, sizeof width);
        const int64_t whole = (int64_t)(width * scale);
        units[i] = whole > w ? (uint64_t)whole : 0;
    }
}

FAST static void mix_grids(uint64_t *blocks, const uint64_t *grid, size_t n) { /* another grid is another draw */
    for (size_t i = 0; i < n; i++) blocks[2 * i] += grid[i];
}

FAST static void draw_units(uint64_t *narrow, const uint64_t *z, const uint64_t *units, size_t n) {
    for (size_t i = 0; i < n; i++) narrow[i] += high_by_halves(z[2 * i], units[i]) - units[i] / 2;
}

/* The blocks of numbers of one row, from some column on. */
FAST static void put_blocks(uint64_t *blocks, const double *x, uint64_t first, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double number = x[i] + 0.0; /* no minus zero */
        blocks[2 * i] = first + i;
        memcpy(blocks + 2 * i + 1, &number, sizeof number);
    }
}

/* rint for |x| < 2^61, with nothing that a vector has no instruction for: 1.5 * 2^52 and a small number have that number, rounded,
 * as their lowest bits. First for x / 2^32, then for what is left, exactly. */
#define SHIFTED 0x1.8p52

static inline int64_t small_rint(double x) {
    int64_t bits;
    x += SHIFTED;
    memcpy(&bits, &x, sizeof bits);
    return bits - (INT64_C(0x4338) << 48);
}

static inline int64_t whole_of(double x) {
    const double high = (x * 0x1p-32 + SHIFTED) - SHIFTED;
    return (int64_t)((uint64_t)small_rint(high) << 32) + small_rint(x - high * 0x1p32);
}

/* Whether a number fits is seen from its bits, and what does not is made 0 by them: a choice between floats would be a branch. */
FAST static int join_fill(const double *x, const uint64_t *fill, size_t n, double scale, int64_t centre, int64_t *out) {
    uint64_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        double size = x[i] * scale;
        int64_t bits;
        memcpy(&bits, &size, sizeof bits);
        const int64_t fits = (bits & INT64_MAX) < INT64_C(1084) << 52 ? -1 : 0; /* |size| < 2^61; not what is no number */
        bad |= (uint64_t)~fits;
        bits &= fits;
        memcpy(&size, &bits, sizeof size);
        out[i] = whole_of(size) + (int64_t)fill[i] - centre;
    }
    return bad != 0;
}

static int64_t bits_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

int encode_filled(int level, const double *x, const uint64_t *entities, size_t rows, size_t dim, const uint8_t *keys,
                  size_t blocks, int f, size_t s, uint32_t w, const int32_t *used, const double *step, double cap,
                  int64_t *out) {
    schedule plans[16];
    tile in, fields;
    uint64_t fill[BLOCKS], grid[BLOCKS], units[BLOCKS];
    const double scale = ldexp(1.0, f);
    const int64_t centre = (int64_t)(s * (uint64_t)(w - 1) / 2), most = bits_of(cap);
    int bad = 0;
    for (size_t k = 0; k < blocks; k++) expand(keys + 32 * k, plans + k);
    for (size_t start = 0, row = 0, column = 0; start < rows * dim; start += BLOCKS) {
        const size_t n = rows * dim - start < BLOCKS ? rows * dim - start : BLOCKS;
        for (size_t i = 0; i < n;) {
            const size_t stop = n - i < dim - column ? n : i + dim - column;
            grids_of(x + start + i, stop - i, used[row], bits_of(step[row]), most, grid + i);
            put_blocks(in.pair + 2 * i, x + start + i, entities[row] + column, stop - i);
            column += stop - i, i = stop;
            if (column == dim) column = 0, row++;
        }
        memset(fill, 0, n * sizeof *fill);
        for (size_t k = 0; k + 1 < blocks; k++) {
            uint64_t factor[4];
            encrypt(level, plans + k, in.byte, 0, 0, fields.byte, n);
            for (size_t j = 0; j < 4; j++) factor[j] = 4 * k + j < s ? w : 0;
            add_narrow(fill, fields.pair, factor, n);
        }
        mix_grids(in.pair, grid, n);
        encrypt(level, plans + blocks - 1, in.byte, 0, 0, fields.byte, n);
        units_of(grid, n, scale, w, units);
        draw_units(fill, fields.pair, units, n);
        bad |= join_fill(x + start, fill, n, scale, centre, out + start);
    }
    return !bad;
}
