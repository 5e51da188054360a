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
#define INLINE AVX2 static inline __attribute__((always_inline))

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

/* ---------------------------------------------------------------------------------------------------- p = 2^61 - 1 */

#define P61 ((UINT64_C(1) << 61) - 1)

/* 2^61 = 1 and 2^64 = 8: what is above the lowest 61 bits is added to them. Any number of 128 bits. */
static inline uint64_t reduced61(wide x) {
    const uint64_t high = high_half(x), low = low_half(x);
    const uint64_t once = (low & P61) + (low >> 61) + (high << 3 & P61) + (high >> 58); /* < 2^63 */
    const uint64_t twice = (once & P61) + (once >> 61);
    return twice >= P61 ? twice - P61 : twice;
}

static inline uint64_t product61(uint64_t a, uint64_t b) { return reduced61(times(a, b)); }

/* a * b + c by halves of 32 bits, which many elements have done side by side: 2^64 = 8, and 2^32 * 2^29 = 1. a is below 2^61 + 8, b
 * and c are reduced. */
static inline uint64_t product_by_halves61(uint64_t a, uint64_t b, uint64_t c) {
    const uint32_t a1 = (uint32_t)(a >> 32), a0 = (uint32_t)a, b1 = (uint32_t)(b >> 32), b0 = (uint32_t)b;
    const uint64_t high = (uint64_t)a1 * b1, middle = (uint64_t)a1 * b0 + (uint64_t)a0 * b1, low = (uint64_t)a0 * b0;
    const uint64_t parts = (high << 3) + (middle >> 29) + ((middle & ((1u << 29) - 1)) << 32) + (low >> 61); /* < 2^63 */
    const uint64_t once = (parts & P61) + (parts >> 61) + (low & P61) + c, twice = (once & P61) + (once >> 61);
    return twice >= P61 ? twice - P61 : twice;
}

FAST void add61(uint64_t *acc, const uint64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t sum = acc[i] + x[i];
        acc[i] = sum >= P61 ? sum - P61 : sum;
    }
}

FAST void sub61(uint64_t *acc, const uint64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] = acc[i] >= x[i] ? acc[i] - x[i] : acc[i] + (P61 - x[i]);
}

FAST void mul61(uint64_t *out, const uint64_t *a, const uint64_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = product_by_halves61(a[i], b[i], 0);
}

static uint64_t power61(uint64_t x) { /* x^(p-2); p - 2 = 2^61 - 3 has all bits set but the second */
    uint64_t power = x, result = 1;
    for (int bit = 0; bit < 61; bit++) {
        if (bit != 1) result = product61(result, power);
        power = product61(power, power);
    }
    return result;
}

void inverse61(uint64_t *out, const uint64_t *x, size_t n) { INVERT(uint64_t, product61, power61) }

/* Thirty-two products of 122 bits fit into 128 bits; then the sum is reduced. One tile of x stays in the cache. */
void combine61(uint64_t *out, const uint64_t *a, const uint64_t *const *x, size_t rows, size_t columns, size_t n) {
    for (size_t start = 0; start < n; start += TILE) {
        const size_t end = n - start < TILE ? n : start + TILE;
        for (size_t r = 0; r < rows; r++)
            for (size_t i = start; i < end; i++) {
                const uint64_t *factor = a + r * columns, *const last = factor + columns, *const *source = x;
                uint64_t sum = 0;
                while (factor < last) {
                    const uint64_t *const stop = last - factor < 32 ? last : factor + 32;
                    wide part = both(0, sum);
                    for (; factor < stop; factor++, source++) part = plus(part, times(*factor, (*source)[i]));
                    sum = reduced61(part);
                }
                out[r * n + i] = sum;
            }
    }
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
                sum = reduced61(part);
            }
            out[j * length + i] = sum;
        }
}

FAST static void join_one(uint64_t less, const uint64_t *x, double *out, size_t n, double scale) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t rest = x[i] >= less ? x[i] - less : x[i] + (P61 - less);
        const int64_t centred = (int64_t)rest - (rest > P61 / 2 ? (int64_t)P61 : 0);
        out[i] = (double)centred * scale;
    }
}

void join61(uint64_t less, const uint64_t *x, double *out, size_t n, double scale) { join_one(less, x, out, n, scale); }

FAST int valid61(const uint64_t *x, size_t n) {
    uint64_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= x[i] >= P61;
    return !bad;
}

size_t accept61(uint64_t *words, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t word = words[i] >> 3;
        words[kept] = word;
        kept += word < P61;
    }
    return kept;
}

FAST void reduce61(uint64_t *out, const int64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t sign = (uint64_t)(x[i] >> 63); /* all ones for negative x */
        const uint64_t size = ((uint64_t)x[i] ^ sign) - sign;
        const uint64_t once = (size & P61) + (size >> 61);
        const uint64_t rest = once >= P61 ? once - P61 : once;
        out[i] = sign && rest ? P61 - rest : rest;
    }
}
