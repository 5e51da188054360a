/* The inner loops of secea. Each one is a plain loop that the compiler vectorises; see kernels.h for what they do. */

#include "platform.h"

#include "kernels.h"

#define TILE 512 /* elements worked on at a time, so that they stay in the first-level cache */

void keep_freed_memory(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    mallopt(M_ARENA_MAX, 1); /* what one thread frees, another takes while it is still in the cache */
#endif
}

void give_back_freed_memory(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* ---------------------------------------------------------------------------------------------- primes below 2^32 */

/* Primes 2^32 - c with small c: 2^32 = c, so the high half folds into the low half. Two folds bring any 64-bit number
 * below 2^32 + 2^21, and x >= p shows in the carry of x + c; then x - p = x + c modulo 2^32. The casts tell the compiler
 * that every factor has 32 bits.
 *
 * Light primes 2^30 - c: 2^32 = 4c and 2^30 = c. One fold of each kind brings any 64-bit number below 2^30 + 2^25 < 2p. Their
 * products have 60 bits, so that LIGHT_GROUP of them, and a number below 2^32, add up in 64 bits: no carry to be looked
 * after. Of products with any word of 32 bits only LIGHT_WORDS do. */
#define FULL(p) ((p) > 0u - 1024)
#define LIGHT(p) ((p) < 1u << 30 && (p) > (1u << 30) - 1024)
#define FOLDS(p) (FULL(p) || LIGHT(p))
#define LIGHT_GROUP 15
#define LIGHT_WORDS 3
#define LOW30 ((1u << 30) - 1)

static inline uint64_t fold(uint64_t x, uint32_t c) { return (uint64_t)(uint32_t)(x >> 32) * c + (uint32_t)x; }

static inline uint32_t folded(uint64_t x, uint32_t c) {
    x = fold(fold(x, c), c);
    return (uint32_t)(x + (c & (0 - ((x + c) >> 32))));
}

static inline uint32_t folded_light(uint64_t x, uint32_t p) {
    const uint32_t c = LOW30 + 1 - p;
    x = fold(x, 4 * c);
    const uint32_t rest = (uint32_t)(x >> 30) * c + ((uint32_t)x & LOW30);
    return rest >= p ? rest - p : rest;
}

FAST static void add_one(uint32_t p, uint32_t *acc, const uint32_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t room = p - x[i]; /* acc + x >= p exactly when acc >= p - x; no sum overflows */
        acc[i] = acc[i] >= room ? acc[i] - room : acc[i] + x[i];
    }
}

FAST static void sub_one(uint32_t p, uint32_t *acc, const uint32_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] = acc[i] >= x[i] ? acc[i] - x[i] : acc[i] + (p - x[i]);
}

void add32(const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, const uint32_t *x, size_t x_step,
           size_t n) {
    for (size_t b = 0; b < count; b++) add_one(primes[b], acc + b * acc_step, x + b * x_step, n);
}

void sub32(const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, const uint32_t *x, size_t x_step,
           size_t n) {
    for (size_t b = 0; b < count; b++) sub_one(primes[b], acc + b * acc_step, x + b * x_step, n);
}

static void mul_folding(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t product = (uint64_t)a[i] * b[i];
        out[i] = LIGHT(p) ? folded_light(product, p) : folded(product, 0u - p);
    }
}

#ifdef AVX2
/* Eight elements in a register are four even and four odd ones, each in the low half of a 64-bit lane after a shift. */
AVX2 static inline __m256i fold_avx2(__m256i x, __m256i c) {
    const __m256i low = _mm256_blend_epi32(x, _mm256_setzero_si256(), 0xAA);
    return _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), c), low);
}

AVX2 static inline __m256i folded_avx2(__m256i x, __m256i c) { /* the result is in the low half of each lane */
    x = fold_avx2(fold_avx2(x, c), c);
    const __m256i carry = _mm256_srli_epi64(_mm256_add_epi64(x, c), 32);
    return _mm256_add_epi64(x, _mm256_mul_epu32(carry, c));
}

AVX2 static inline __m256i joined_avx2(__m256i even, __m256i odd) {
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

AVX2 static inline __m256i folded_light_avx2(__m256i x, __m256i c) { /* below 2p */
    x = fold_avx2(x, _mm256_slli_epi64(c, 2));
    return _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 30), c), _mm256_and_si256(x, _mm256_set1_epi64x(LOW30)));
}

AVX2 static inline __m256i joined_light_avx2(__m256i even, __m256i odd, __m256i p) {
    const __m256i x = joined_avx2(even, odd);
    return _mm256_min_epu32(x, _mm256_sub_epi32(x, p)); /* x - p is huge if x < p */
}

#define LOAD(at) _mm256_loadu_si256((const __m256i *)(at))
#define STORE(at, value) _mm256_storeu_si256((__m256i *)(at), value)
#define SMALL(p) _mm256_set1_epi64x(LIGHT(p) ? (1u << 30) - (p) : 0u - (p)) /* c */

AVX2 static void mul_avx2(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    const __m256i c = SMALL(p), all = _mm256_set1_epi32((int)p);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i u = LOAD(a + i), v = LOAD(b + i), even = _mm256_mul_epu32(u, v);
        const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(u, 32), _mm256_srli_epi64(v, 32));
        if (LIGHT(p)) STORE(out + i, joined_light_avx2(folded_light_avx2(even, c), folded_light_avx2(odd, c), all));
        else STORE(out + i, joined_avx2(folded_avx2(even, c), folded_avx2(odd, c)));
    }
    mul_folding(p, out + i, a + i, b + i, n - i);
}
#endif

static void mul_one(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    if (FOLDS(p)) {
#ifdef AVX2
        if (has_avx2) {
            mul_avx2(p, out, a, b, n);
            return;
        }
#endif
        mul_folding(p, out, a, b, n);
    } else for (size_t i = 0; i < n; i++) out[i] = (uint32_t)((uint64_t)a[i] * b[i] % p);
}

void mul32(const uint32_t *primes, size_t count, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    for (size_t k = 0; k < count; k++) mul_one(primes[k], out + k * n, a + k * n, b + k * n, n);
}

static uint32_t power32(uint32_t p, uint32_t x) { /* x^(p-2) */
    uint64_t power = x, result = 1;
    for (uint32_t e = p - 2; e; e >>= 1) {
        if (e & 1) result = result * power % p;
        power = power * power % p;
    }
    return (uint32_t)result;
}

/* Montgomery's trick: one inversion a tile, by a power, and three products an element. Zeros count as ones. */
#define INVERT(element, product, power)                                                                                \
    element before[TILE];                                                                                              \
    for (size_t start = 0; start < n; start += TILE) {                                                                 \
        const size_t size = n - start < TILE ? n - start : TILE;                                                       \
        element all = 1, rest;                                                                                         \
        for (size_t i = 0; i < size; i++) {                                                                            \
            before[i] = all;                                                                                           \
            all = product(all, x[start + i] ? x[start + i] : 1);                                                       \
        }                                                                                                              \
        rest = power(all);                                                                                             \
        for (size_t i = size; i-- > 0;) {                                                                              \
            const element value = x[start + i];                                                                        \
            out[start + i] = value ? product(rest, before[i]) : 0;                                                     \
            rest = product(rest, value ? value : 1);                                                                   \
        }                                                                                                              \
    }

static void inverse_one(uint32_t p, uint32_t *out, const uint32_t *x, size_t n) {
#define PRODUCT(a, b) ((uint32_t)((uint64_t)(a) * (b) % p))
#define POWER(a) power32(p, a)
    INVERT(uint32_t, PRODUCT, POWER)
#undef PRODUCT
#undef POWER
}

void inverse32(const uint32_t *primes, size_t count, uint32_t *out, const uint32_t *x, size_t n) {
    for (size_t b = 0; b < count; b++) inverse_one(primes[b], out + b * n, x + b * n, n);
}

/* Sums of products of 32-bit numbers, which fill 64 bits each: `sum` is the sum modulo 2^64, `high` that of the products
 * without their low CUT bits. What is below is then sum - high * 2^CUT, exactly, and 2^CUT = c * 2^(CUT - 32). After at most
 * GROUP products `high` fits into 32 bits, and the sum is reduced; it may begin at any number below 2^32. */
#define CUT 38
#define GROUP 64

static inline uint32_t closed(uint64_t sum, uint64_t high, uint32_t c) { /* the argument of fold is below 2^49 */
    const uint64_t x = fold(sum - (high << CUT) + high * ((uint64_t)c << (CUT - 32)), c);
    return (uint32_t)(x + (c & (0 - ((x + c) >> 32))));
}

/* `begin` and the sum over k in [first, last) of w(k) * y(k), where `factor` and `value` say what these are. */
#define SUM_OF_PRODUCTS(total, begin, first, last, factor, value)                                                      \
    uint32_t total = (begin);                                                                                          \
    for (int64_t k = (first), end = (last); k < end;) {                                                                \
        const int64_t most = LIGHT(p) ? LIGHT_WORDS : GROUP, stop = end - k < most ? end : k + most;                   \
        uint64_t sum = total, high = 0;                                                                                \
        for (; k < stop; k++) {                                                                                        \
            const uint64_t product = (uint64_t)(factor) * (value);                                                     \
            sum += product;                                                                                            \
            high += product >> CUT;                                                                                    \
        }                                                                                                              \
        total = LIGHT(p) ? folded_light(sum, p) : closed(sum, high, 0u - p);                                           \
    }

#ifdef AVX2
AVX2 static inline __m256i closed_avx2(__m256i sum, __m256i high, __m256i c) {
    const __m256i below = _mm256_sub_epi64(sum, _mm256_slli_epi64(high, CUT));
    const __m256i above = _mm256_mul_epu32(high, _mm256_slli_epi64(c, CUT - 32));
    const __m256i x = fold_avx2(_mm256_add_epi64(below, above), c);
    const __m256i carry = _mm256_srli_epi64(_mm256_add_epi64(x, c), 32);
    return _mm256_add_epi64(x, _mm256_mul_epu32(carry, c));
}

/* Eight sums at a time: those of the even elements, and those of the odd ones. */
typedef struct {
    __m256i even, even_high, odd, odd_high;
} sums;

AVX2 static inline sums sums_from(__m256i begin) { /* eight elements */
    const __m256i zero = _mm256_setzero_si256();
    return (sums){_mm256_blend_epi32(begin, zero, 0xAA), zero, _mm256_srli_epi64(begin, 32), zero};
}

/* The loops over these are compiled twice: `light` is a constant in each. */
#define INLINE AVX2 INLINED

INLINE void add_products(int light, sums *s, __m256i even, __m256i odd, __m256i factor) {
    const __m256i a = _mm256_mul_epu32(even, factor), b = _mm256_mul_epu32(odd, factor);
    s->even = _mm256_add_epi64(s->even, a), s->odd = _mm256_add_epi64(s->odd, b);
    if (light) return;
    s->even_high = _mm256_add_epi64(s->even_high, _mm256_srli_epi64(a, CUT));
    s->odd_high = _mm256_add_epi64(s->odd_high, _mm256_srli_epi64(b, CUT));
}

INLINE __m256i closed_sums(int light, const sums *s, __m256i c, __m256i p) {
    if (light) return joined_light_avx2(folded_light_avx2(s->even, c), folded_light_avx2(s->odd, c), p);
    return joined_avx2(closed_avx2(s->even, s->even_high, c), closed_avx2(s->odd, s->odd_high, c));
}

/* Two rows at a time share what is loaded; one tile of x stays in the cache for all rows. */
INLINE void combine_tiles(int light, size_t group, uint32_t p, uint32_t *out, size_t row_step, const uint32_t *a,
                          const uint32_t *const *x, size_t rows, size_t columns, size_t whole) {
    const __m256i c = SMALL(p), all = _mm256_set1_epi32((int)p), zero = _mm256_setzero_si256();
    for (size_t start = 0; start < whole; start += TILE) {
        const size_t end = whole - start < TILE ? whole : start + TILE;
        for (size_t first = 0; first < columns; first += group) {
            const size_t last = columns - first < group ? columns : first + group;
            size_t r = 0;
            for (; r + 2 <= rows; r += 2) {
                const uint32_t *const f = a + r * columns, *const g = f + columns;
                uint32_t *const one = out + r * row_step, *const other = one + row_step;
                for (size_t i = start; i < end; i += 8) {
                    sums s = sums_from(first ? LOAD(one + i) : zero), t = sums_from(first ? LOAD(other + i) : zero);
                    for (size_t k = first; k < last; k++) {
                        const __m256i even = LOAD(x[k] + i), odd = _mm256_srli_epi64(even, 32);
                        add_products(light, &s, even, odd, _mm256_set1_epi32((int)f[k]));
                        add_products(light, &t, even, odd, _mm256_set1_epi32((int)g[k]));
                    }
                    STORE(one + i, closed_sums(light, &s, c, all));
                    STORE(other + i, closed_sums(light, &t, c, all));
                }
            }
            if (r < rows)
                for (size_t i = start; i < end; i += 8) {
                    uint32_t *const at = out + r * row_step + i;
                    sums s = sums_from(first ? LOAD(at) : zero);
                    for (size_t k = first; k < last; k++) {
                        const __m256i even = LOAD(x[k] + i), odd = _mm256_srli_epi64(even, 32);
                        add_products(light, &s, even, odd, _mm256_set1_epi32((int)a[r * columns + k]));
                    }
                    STORE(at, closed_sums(light, &s, c, all));
                }
        }
    }
}

AVX2 static void combine_avx2(uint32_t p, int words, uint32_t *out, size_t row_step, const uint32_t *a,
                              const uint32_t *const *x, size_t rows, size_t columns, size_t whole) {
    if (LIGHT(p)) combine_tiles(1, words ? LIGHT_WORDS : LIGHT_GROUP, p, out, row_step, a, x, rows, columns, whole);
    else combine_tiles(0, GROUP, p, out, row_step, a, x, rows, columns, whole);
}
#endif

static void combine_one(uint32_t p, int words, uint32_t *out, size_t row_step, const uint32_t *a, const uint32_t *const *x,
                        size_t rows, size_t columns, size_t n) {
    size_t start = 0;
#ifdef AVX2
    if (FOLDS(p) && has_avx2 && columns) combine_avx2(p, words, out, row_step, a, x, rows, columns, start = n - n % 8);
#endif
    for (size_t r = 0; r < rows; r++)
        for (size_t i = start; i < n; i++)
            if (FOLDS(p)) {
                SUM_OF_PRODUCTS(total, 0, 0, (int64_t)columns, a[r * columns + k], x[k][i])
                out[r * row_step + i] = total;
            } else {
                uint64_t sum = 0;
                for (size_t k = 0; k < columns; k++) sum = (sum + (uint64_t)a[r * columns + k] * x[k][i] % p) % p;
                out[r * row_step + i] = (uint32_t)sum;
            }
}

void combine32(const uint32_t *primes, size_t count, int words, uint32_t *out, size_t out_step, size_t row_step,
               const uint32_t *a, const uint32_t **x, const size_t *steps, size_t rows, size_t columns, size_t n) {
    for (size_t b = 0; b < count; b++) {
        combine_one(primes[b], words, out + b * out_step, row_step, a + b * rows * columns, x, rows, columns, n);
        for (size_t k = 0; k < columns; k++) x[k] += steps[k];
    }
}

/* Garner: the mixed-radix digits of each element, tile by tile, then Horner's rule from the top. Above the middle the number
 * stands for a negative one, whose size has the complements as digits: nothing cancels. */
FAST static void digit_less(uint32_t p, uint32_t *digit, const uint32_t *other, size_t n) { /* other < 2p */
    for (size_t i = 0; i < n; i++) {
        const uint32_t rest = other[i] >= p ? other[i] - p : other[i];
        digit[i] = digit[i] >= rest ? digit[i] - rest : digit[i] + (p - rest);
    }
}

FAST static void copy_less(uint32_t p, uint32_t *digit, const uint32_t *x, uint32_t less, size_t n) {
    for (size_t i = 0; i < n; i++) digit[i] = x[i] >= less ? x[i] - less : x[i] + (p - less);
}

FAST static void above_middle(uint32_t middle, const uint32_t *digit, uint32_t *above, size_t n) {
    for (size_t i = 0; i < n; i++) above[i] = digit[i] == middle ? above[i] : digit[i] > middle ? UINT32_MAX : 0;
}

FAST static void next_digit(uint32_t p, const uint32_t *digit, const uint32_t *above, double *value, size_t n) {
    for (size_t i = 0; i < n; i++) { /* the complement p - 1 - digit, if above; as a signed number, for the conversion */
        const uint32_t size = above[i] ? p - 1 - digit[i] : digit[i];
        value[i] = value[i] * p + ((double)(int32_t)(size ^ 0x80000000u) + 0x1p31);
    }
}

FAST static void with_sign(const uint32_t *above, double *value, double scale, size_t n) { /* no branch: it is random */
    for (size_t i = 0; i < n; i++) value[i] = (value[i] + (double)(int32_t)(above[i] & 1)) * (above[i] ? -scale : scale);
}

void join32(const uint32_t *primes, size_t count, const uint32_t *inverses, const uint32_t *less, const uint32_t *x,
            size_t x_step, double *out, size_t n, double scale) {
    uint32_t digits[16][TILE], factor[TILE], above[TILE];
    for (size_t start = 0; start < n; start += TILE) {
        const size_t size = n - start < TILE ? n - start : TILE;
        memset(above, 0, sizeof above);
        memset(out + start, 0, size * sizeof *out);
        for (size_t b = 0; b < count; b++) {
            copy_less(primes[b], digits[b], x + b * x_step + start, less[b], size);
            for (size_t a = 0; a < b; a++) { /* digit = (digit - digits[a]) / primes[a] modulo p */
                const uint32_t *other = digits[a];
                if (primes[a] >= 2 * (uint64_t)primes[b]) {
                    for (size_t i = 0; i < size; i++) factor[i] = other[i] % primes[b];
                    other = factor;
                }
                digit_less(primes[b], digits[b], other, size);
                for (size_t i = 0; i < size; i++) factor[i] = inverses[a * count + b];
                mul_one(primes[b], digits[b], digits[b], factor, size);
            }
            above_middle((primes[b] - 1) / 2, digits[b], above, size);
        }
        for (size_t b = count; b-- > 0;) next_digit(primes[b], digits[b], above, out + start, size);
        with_sign(above, out + start, scale, size);
    }
}

#define MANTISSA ((UINT64_C(1) << 52) - 1)

static inline int leading_bit(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 52 & 0x7FF) - 1023;
}

/* All bits that a mantissa has, and the least exponent of a lowest bit. The lowest bit of a mantissa is a whole number below 2^52:
 * the exponent of that as a float is its place. Numbers without a leading one are zero, or as good as zero. */
FAST static void lowest_bits(const double *x, size_t n, uint64_t *mantissas, int64_t *least) {
    uint64_t all = 0;
    int64_t low = INT_MAX;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        double place;
        memcpy(&bits, x + i, sizeof bits);
        const int64_t e = (int64_t)(bits >> 52 & 0x7FF);
        const uint64_t mantissa = bits & MANTISSA, lowest = (mantissa & (0 - mantissa)) | UINT64_C(1075) << 52;
        memcpy(&place, &lowest, sizeof place); /* 2^52 and the bit */
        place -= 0x1p52;
        memcpy(&bits, &place, sizeof bits);
        const int64_t exponent = e - 1023 + (mantissa ? (int64_t)(bits >> 52) - 1075 : 0), here = e ? exponent : INT_MAX;
        all |= e ? mantissa : 0;
        low = here < low ? here : low;
    }
    *mantissas = all, *least = low;
}

void significance(const double *x, size_t n, int *used, int *step) {
    uint64_t mantissas;
    int64_t least;
    lowest_bits(x, n, &mantissas, &least);
    *used = 52 - trailing_zeros(mantissas | UINT64_C(1) << 52), *step = (int)least;
}

#define MOST_SIZES 64

/* Whether this size is among those that were seen; if not, it is put there. */
static int seen_before(double size, double *seen, int count) {
    for (int k = 0; k < count; k++)
        if (seen[k] == size) return 1;
    seen[count] = size;
    return 0;
}

void significance_rows(const double *x, size_t rows, size_t dim, int most, int *used, int *step, int *sizes) {
    double seen[MOST_SIZES];
    for (size_t row = 0; row < rows; row++, x += dim) {
        significance(x, dim, used + row, step + row);
        sizes[row] = 0;
        for (size_t i = 0; i < dim && sizes[row] < most; i++)
            if (leading_bit(x[i]) != -1023) sizes[row] += !seen_before(fabs(x[i]), seen, sizes[row]);
    }
}

FAST static int valid_one(uint32_t p, const uint32_t *x, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= x[i] >= p;
    return !bad;
}

int valid32(const uint32_t *primes, size_t count, const uint32_t *x, size_t n) {
    for (size_t b = 0; b < count; b++)
        if (!valid_one(primes[b], x + b * n, n)) return 0;
    return 1;
}

static inline int spare_bits(uint32_t p) { /* bits that a word has more than p */
    int spare = 0;
    while (!(p >> (31 - spare))) spare++;
    return spare;
}

/* Whether every word, cut to the bits of p, is below it; then they are cut. */
FAST static int cut(uint32_t p, int spare, uint32_t *words, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= words[i] >> spare >= p;
    if (bad) return 0;
    if (spare)
        for (size_t i = 0; i < n; i++) words[i] >>= spare;
    return 1;
}

size_t usable32(const uint32_t *primes, size_t count, uint32_t *words, size_t n) {
    for (size_t b = 0; b < count; b++) {
        const int spare = spare_bits(primes[b]);
        for (size_t start = 0; start < n; start += TILE) {
            const size_t size = n - start < TILE ? n - start : TILE;
            if (!cut(primes[b], spare, words + b * n + start, size)) return b * n + start;
        }
    }
    return count * n;
}

size_t accept32(uint32_t p, uint32_t *words, size_t n) {
    const int spare = spare_bits(p);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t word = words[i] >> spare;
        words[kept] = word;
        kept += word < p;
    }
    return kept;
}

void reduce32(const uint32_t *primes, size_t count, uint32_t *out, const int64_t *x, size_t n) {
    for (size_t b = 0; b < count; b++) {
        const uint32_t p = primes[b];
        for (size_t i = 0; i < n; i++) {
            const uint64_t size = x[i] < 0 ? 0 - (uint64_t)x[i] : (uint64_t)x[i];
            const uint32_t rest = FULL(p) ? folded(size, 0u - p) : (uint32_t)(size % p);
            out[b * n + i] = x[i] < 0 && rest ? p - rest : rest;
        }
    }
}

/* --------------------------------------------------------------------------------- p = 2^61 - 1, and p = 2^56 - 5 */

/* p = 2^bits - c, so that 2^bits = c: what is above the lowest bits is added to them c times. A loop is compiled for both: in each,
 * `bits` is a constant. */
#define C64(bits) ((bits) == 61 ? UINT64_C(1) : UINT64_C(5))
#define LOW64(bits) ((UINT64_C(1) << (bits)) - 1)
#define P64(bits) (LOW64(bits) + 1 - C64(bits))
#define BOTH(bits, loop, ...) ((bits) == 61 ? loop(61, __VA_ARGS__) : loop(56, __VA_ARGS__))

INLINED uint64_t fold64(unsigned bits, uint64_t x) { return (x & LOW64(bits)) + (x >> bits) * C64(bits); }

INLINED uint64_t below_p64(unsigned bits, uint64_t x) { return x >= P64(bits) ? x - P64(bits) : x; } /* x < 2p */

INLINED uint64_t minus64(unsigned bits, uint64_t x, uint64_t y) { return x >= y ? x - y : x + (P64(bits) - y); }

/* Any number of 128 bits: 2^64 = c * 2^(64 - bits). */
INLINED uint64_t reduced64(unsigned bits, wide x) {
    const uint64_t high = high_half(x), c = C64(bits);
    const uint64_t above = (high << (64 - bits) & LOW64(bits)) + (high >> (2 * bits - 64)) * c;
    return below_p64(bits, fold64(bits, fold64(bits, low_half(x)) + above * c)); /* folded twice, the first time below 2^63 */
}

INLINED uint64_t product64(unsigned bits, uint64_t a, uint64_t b) { return reduced64(bits, times(a, b)); }

/* a * b + added by halves of 32 bits, which many elements have done side by side: 2^64 = c * 2^(64 - bits), and 2^32 *
 * 2^(bits - 32) = c. a is folded once, b and what is added are reduced. */
INLINED uint64_t product_by_halves64(unsigned bits, uint64_t a, uint64_t b, uint64_t added) {
    const uint32_t a1 = (uint32_t)(a >> 32), a0 = (uint32_t)a, b1 = (uint32_t)(b >> 32), b0 = (uint32_t)b;
    const uint64_t high = (uint64_t)a1 * b1, middle = (uint64_t)a1 * b0 + (uint64_t)a0 * b1, low = (uint64_t)a0 * b0;
    const uint64_t above = (high << (64 - bits)) + (middle >> (bits - 32)) + (low >> bits);
    const uint64_t parts = above * C64(bits) + ((middle & LOW64(bits - 32)) << 32); /* below 2^63, or 2^60 */
    const uint64_t once = (bits > 60 ? fold64(bits, parts) : parts) + (low & LOW64(bits)) + added;
    return below_p64(bits, fold64(bits, once));
}

INLINED void add_loop(unsigned bits, uint64_t *acc, const uint64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] = below_p64(bits, acc[i] + x[i]);
}

INLINED void sub_loop(unsigned bits, uint64_t *acc, const uint64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] = minus64(bits, acc[i], x[i]);
}

INLINED void mul_loop(unsigned bits, uint64_t *out, const uint64_t *a, const uint64_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = product_by_halves64(bits, a[i], b[i], 0);
}

FAST void add64(unsigned bits, uint64_t *acc, const uint64_t *x, size_t n) { BOTH(bits, add_loop, acc, x, n); }

FAST void sub64(unsigned bits, uint64_t *acc, const uint64_t *x, size_t n) { BOTH(bits, sub_loop, acc, x, n); }

FAST void mul64(unsigned bits, uint64_t *out, const uint64_t *a, const uint64_t *b, size_t n) {
    BOTH(bits, mul_loop, out, a, b, n);
}

INLINED uint64_t power64(unsigned bits, uint64_t x) { /* x^(p-2) */
    uint64_t power = x, result = 1;
    for (uint64_t e = P64(bits) - 2; e; e >>= 1) {
        if (e & 1) result = product64(bits, result, power);
        power = product64(bits, power, power);
    }
    return result;
}

INLINED void inverse_loop(unsigned bits, uint64_t *out, const uint64_t *x, size_t n) {
#define PRODUCT(a, b) product64(bits, a, b)
#define POWER(a) power64(bits, a)
    INVERT(uint64_t, PRODUCT, POWER)
#undef PRODUCT
#undef POWER
}

void inverse64(unsigned bits, uint64_t *out, const uint64_t *x, size_t n) { BOTH(bits, inverse_loop, out, x, n); }

/* So many products, and an element, fit into 128 bits; then the sum is reduced. */
#define PRODUCTS64(bits) ((size_t)1 << (127 - 2 * (bits)))

/* One tile of x stays in the cache. */
INLINED void combine_loop(unsigned bits, uint64_t *out, const uint64_t *a, const uint64_t *const *x, size_t rows,
                          size_t columns, size_t n) {
    for (size_t start = 0; start < n; start += TILE) {
        const size_t end = n - start < TILE ? n : start + TILE;
        for (size_t r = 0; r < rows; r++)
            for (size_t i = start; i < end; i++) {
                uint64_t sum = 0;
                for (size_t k = 0; k < columns;) {
                    const size_t stop = columns - k < PRODUCTS64(bits) ? columns : k + PRODUCTS64(bits);
                    wide part = both(0, sum);
                    for (; k < stop; k++) part = plus(part, times(a[r * columns + k], x[k][i]));
                    sum = reduced64(bits, part);
                }
                out[r * n + i] = sum;
            }
    }
}

void combine64(unsigned bits, uint64_t *out, const uint64_t *a, const uint64_t *const *x, size_t rows, size_t columns,
               size_t n) {
    BOTH(bits, combine_loop, out, a, x, rows, columns, n);
}

#define ROW_OF(k) (y + (members ? members[k] : (k)-starts[j]) * length)

void gather61(uint64_t *out, const int64_t *starts, const int64_t *members, const uint64_t *w, const uint64_t *y,
              size_t rows, size_t length) {
    for (size_t j = 0; j < rows; j++)
        for (size_t i = 0; i < length; i++) {
            int64_t k = starts[j];
            uint64_t sum = out[j * length + i];
            while (k < starts[j + 1]) {
                const int64_t stop = starts[j + 1] - k < 32 ? starts[j + 1] : k + 32;
                wide part = both(0, sum);
                for (; k < stop; k++) part = plus(part, times(w[k], ROW_OF(k)[i]));
                sum = reduced64(61, part);
            }
            out[j * length + i] = sum;
        }
}

INLINED void join_loop(unsigned bits, uint64_t less, const uint64_t *x, double *out, size_t n, double scale) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t rest = minus64(bits, x[i], less);
        const int64_t centred = (int64_t)rest - (rest > P64(bits) / 2 ? (int64_t)P64(bits) : 0);
        out[i] = (double)centred * scale;
    }
}

FAST static void join_one(unsigned bits, uint64_t less, const uint64_t *x, double *out, size_t n, double scale) {
    BOTH(bits, join_loop, less, x, out, n, scale);
}

void join64(unsigned bits, uint64_t less, const uint64_t *x, double *out, size_t n, double scale) {
    join_one(bits, less, x, out, n, scale);
}

INLINED int valid_loop(unsigned bits, const uint64_t *x, size_t n) {
    uint64_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= x[i] >= P64(bits);
    return !bad;
}

FAST int valid64(unsigned bits, const uint64_t *x, size_t n) { return BOTH(bits, valid_loop, x, n); }

size_t accept64(unsigned bits, uint64_t *words, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t word = words[i] >> (64 - bits);
        words[kept] = word;
        kept += word < P64(bits);
    }
    return kept;
}

INLINED void reduce_loop(unsigned bits, uint64_t *out, const int64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t sign = (uint64_t)(x[i] >> 63); /* all ones for negative x */
        const uint64_t rest = below_p64(bits, fold64(bits, ((uint64_t)x[i] ^ sign) - sign));
        out[i] = sign && rest ? P64(bits) - rest : rest;
    }
}

FAST void reduce64(unsigned bits, uint64_t *out, const int64_t *x, size_t n) { BOTH(bits, reduce_loop, out, x, n); }

/* ------------------------------------------------------------------------------------------ elements of seven bytes */

/* Two words of four bytes each, which have one byte in common: compilers know these for what they are. */
static inline uint32_t load32(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline void store32(uint8_t *at, uint32_t x) {
    at[0] = (uint8_t)x, at[1] = (uint8_t)(x >> 8), at[2] = (uint8_t)(x >> 16), at[3] = (uint8_t)(x >> 24);
}

#ifdef AVX2
/* Two elements in each half of a register are fourteen bytes. Of sixteen that are read or written, the last two belong to the next
 * element: as long as there is one. The last few are done one by one. */
AVX2 static size_t pack_avx2(uint8_t *out, const uint64_t *x, size_t n) {
    const __m256i closer = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, -1, -1));
    size_t i = 0;
    for (; i + 5 <= n; i += 4, out += 28) {
        const __m256i packed = _mm256_shuffle_epi8(LOAD(x + i), closer);
        _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(packed));
        _mm_storeu_si128((__m128i *)(out + 14), _mm256_extracti128_si256(packed, 1));
    }
    return i;
}

AVX2 static size_t unpack_avx2(uint64_t *out, const uint8_t *in, size_t n, uint64_t *above) {
    const __m256i apart = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, -1, 7, 8, 9, 10, 11, 12, 13, -1));
    const __m256i c = _mm256_set1_epi64x(C64(56));
    __m256i all = _mm256_setzero_si256();
    uint64_t each[4];
    size_t i = 0;
    for (; i + 5 <= n; i += 4, in += 28) {
        const __m128i low = _mm_loadu_si128((const __m128i *)in), high = _mm_loadu_si128((const __m128i *)(in + 14));
        const __m256i x = _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1), apart);
        STORE(out + i, x);
        all = _mm256_or_si256(all, _mm256_add_epi64(x, c));
    }
    STORE(each, all);
    *above = each[0] | each[1] | each[2] | each[3];
    return i;
}
#endif

void pack56(uint8_t *out, const uint64_t *x, size_t n) {
    size_t i = 0;
#ifdef AVX2
    if (has_avx2) i = pack_avx2(out, x, n);
#endif
    for (; i < n; i++) store32(out + 7 * i, (uint32_t)x[i]), store32(out + 7 * i + 3, (uint32_t)(x[i] >> 24));
}

int unpack56(uint64_t *out, const uint8_t *in, size_t n) {
    uint64_t above = 0; /* x + c has a bit above the lowest 56 exactly if x is not below p */
    size_t i = 0;
#ifdef AVX2
    if (has_avx2) i = unpack_avx2(out, in, n, &above);
#endif
    for (; i < n; i++) {
        out[i] = load32(in + 7 * i) | (uint64_t)load32(in + 7 * i + 3) << 24;
        above |= out[i] + C64(56);
    }
    return !(above >> 56);
}
