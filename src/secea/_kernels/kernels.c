/* The inner loops of secea. Each one is a plain loop that the compiler vectorises; see kernels.h for what they do. */

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FAST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FAST
#endif

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#endif

typedef unsigned __int128 wide;

#define TILE 512 /* elements worked on at a time, so that they stay in the first-level cache */

void keep_freed_memory(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
#endif
}

/* ---------------------------------------------------------------------------------------------- primes below 2^32 */

/* Primes 2^32 - c with small c: 2^32 = c, so the high half folds into the low half. Two folds bring any 64-bit number
 * below 2^32 + 2^21, and x >= p shows in the carry of x + c; then x - p = x + c modulo 2^32. The casts tell the compiler
 * that every factor has 32 bits. */
#define FOLDS(c) ((c) < 1024)

static inline uint64_t fold(uint64_t x, uint32_t c) { return (uint64_t)(uint32_t)(x >> 32) * c + (uint32_t)x; }

static inline uint32_t folded(uint64_t x, uint32_t c) {
    x = fold(fold(x, c), c);
    return (uint32_t)(x + (c & (0 - ((x + c) >> 32))));
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
    const uint32_t c = 0u - p;
    for (size_t i = 0; i < n; i++) out[i] = folded((uint64_t)a[i] * b[i], c);
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

AVX2 static void mul_avx2(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    const __m256i c = _mm256_set1_epi64x(0u - p);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i u = _mm256_loadu_si256((const __m256i *)(a + i)), v = _mm256_loadu_si256((const __m256i *)(b + i));
        const __m256i even = folded_avx2(_mm256_mul_epu32(u, v), c);
        const __m256i odd = folded_avx2(_mm256_mul_epu32(_mm256_srli_epi64(u, 32), _mm256_srli_epi64(v, 32)), c);
        _mm256_storeu_si256((__m256i *)(out + i), joined_avx2(even, odd));
    }
    mul_folding(p, out + i, a + i, b + i, n - i);
}
#endif

static void mul_one(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    if (FOLDS(0u - p)) {
#ifdef AVX2
        if (HAS_AVX2) {
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

/* The sum over k in [first, last) of w(k) * y(k), where `factor` and `value` say what these are. */
#define SUM_OF_PRODUCTS(total, first, last, factor, value)                                                             \
    uint32_t total = 0;                                                                                                \
    for (int64_t k = (first), end = (last); k < end;) {                                                                \
        const int64_t stop = end - k < GROUP ? end : k + GROUP;                                                        \
        uint64_t sum = total, high = 0;                                                                                \
        for (; k < stop; k++) {                                                                                        \
            const uint64_t product = (uint64_t)(factor) * (value);                                                     \
            sum += product;                                                                                            \
            high += product >> CUT;                                                                                    \
        }                                                                                                              \
        total = closed(sum, high, c);                                                                                  \
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

AVX2 static inline void add_products(sums *s, __m256i even, __m256i odd, __m256i factor) {
    const __m256i a = _mm256_mul_epu32(even, factor), b = _mm256_mul_epu32(odd, factor);
    s->even = _mm256_add_epi64(s->even, a), s->even_high = _mm256_add_epi64(s->even_high, _mm256_srli_epi64(a, CUT));
    s->odd = _mm256_add_epi64(s->odd, b), s->odd_high = _mm256_add_epi64(s->odd_high, _mm256_srli_epi64(b, CUT));
}

AVX2 static inline __m256i closed_sums(const sums *s, __m256i c) {
    return joined_avx2(closed_avx2(s->even, s->even_high, c), closed_avx2(s->odd, s->odd_high, c));
}

#define LOAD(at) _mm256_loadu_si256((const __m256i *)(at))
#define STORE(at, value) _mm256_storeu_si256((__m256i *)(at), value)

/* Two rows at a time share what is loaded; one tile of x stays in the cache for all rows. */
AVX2 static void combine_avx2(uint32_t p, uint32_t *out, size_t row_step, const uint32_t *a, const uint32_t *const *x,
                              size_t rows, size_t columns, size_t whole) {
    const __m256i c = _mm256_set1_epi64x(0u - p), zero = _mm256_setzero_si256();
    for (size_t start = 0; start < whole; start += TILE) {
        const size_t end = whole - start < TILE ? whole : start + TILE;
        for (size_t first = 0; first < columns; first += GROUP) {
            const size_t last = columns - first < GROUP ? columns : first + GROUP;
            size_t r = 0;
            for (; r + 2 <= rows; r += 2) {
                const uint32_t *const f = a + r * columns, *const g = f + columns;
                uint32_t *const one = out + r * row_step, *const other = one + row_step;
                for (size_t i = start; i < end; i += 8) {
                    sums s = sums_from(first ? LOAD(one + i) : zero), t = sums_from(first ? LOAD(other + i) : zero);
                    for (size_t k = first; k < last; k++) {
                        const __m256i even = LOAD(x[k] + i), odd = _mm256_srli_epi64(even, 32);
                        add_products(&s, even, odd, _mm256_set1_epi32((int)f[k]));
                        add_products(&t, even, odd, _mm256_set1_epi32((int)g[k]));
                    }
                    STORE(one + i, closed_sums(&s, c));
                    STORE(other + i, closed_sums(&t, c));
                }
            }
            if (r < rows)
                for (size_t i = start; i < end; i += 8) {
                    uint32_t *const at = out + r * row_step + i;
                    sums s = sums_from(first ? LOAD(at) : zero);
                    for (size_t k = first; k < last; k++) {
                        const __m256i even = LOAD(x[k] + i), odd = _mm256_srli_epi64(even, 32);
                        add_products(&s, even, odd, _mm256_set1_epi32((int)a[r * columns + k]));
                    }
                    STORE(at, closed_sums(&s, c));
                }
        }
    }
}
#endif

static void combine_one(uint32_t p, uint32_t *out, size_t row_step, const uint32_t *a, const uint32_t *const *x,
                        size_t rows, size_t columns, size_t n) {
    const uint32_t c = 0u - p;
    size_t start = 0;
#ifdef AVX2
    if (FOLDS(c) && HAS_AVX2 && columns) combine_avx2(p, out, row_step, a, x, rows, columns, start = n - n % 8);
#endif
    for (size_t r = 0; r < rows; r++)
        for (size_t i = start; i < n; i++)
            if (FOLDS(c)) {
                SUM_OF_PRODUCTS(total, 0, (int64_t)columns, a[r * columns + k], x[k][i])
                out[r * row_step + i] = total;
            } else {
                uint64_t sum = 0;
                for (size_t k = 0; k < columns; k++) sum = (sum + (uint64_t)a[r * columns + k] * x[k][i] % p) % p;
                out[r * row_step + i] = (uint32_t)sum;
            }
}

void combine32(const uint32_t *primes, size_t count, uint32_t *out, size_t out_step, size_t row_step, const uint32_t *a,
               const uint32_t **x, const size_t *steps, size_t rows, size_t columns, size_t n) {
    for (size_t b = 0; b < count; b++) {
        combine_one(primes[b], out + b * out_step, row_step, a + b * rows * columns, x, rows, columns, n);
        for (size_t k = 0; k < columns; k++) x[k] += steps[k];
    }
}

#define ROW_OF(k) (y + (members ? members[k] : (k)-starts[j]) * length)

#ifdef AVX2
#define AHEAD 12 /* positions */

#define SPAN 24 /* elements of a row worked on at a time: their sums fill the registers */

/* In both of these the last elements may overlap those before them, and are then computed twice. */
AVX2 static void gather_long(uint32_t p, uint32_t *out, const int64_t *starts, const int64_t *members, const uint32_t *w,
                             const uint32_t *y, size_t j, size_t length) {
    const __m256i c = _mm256_set1_epi64x(0u - p), zero = _mm256_setzero_si256();
    for (size_t at = 0; at < length; at += SPAN) {
        const size_t i = at + SPAN <= length ? at : length - SPAN;
        __m256i first = zero, second = zero, third = zero;
        for (int64_t k = starts[j]; k < starts[j + 1];) {
            const int64_t stop = starts[j + 1] - k < GROUP ? starts[j + 1] : k + GROUP;
            sums r = sums_from(first), s = sums_from(second), t = sums_from(third);
            for (; k < stop; k++) {
                const uint32_t *const row = ROW_OF(k) + i;
                const __m256i factor = _mm256_set1_epi32((int)w[k]);
                const __m256i u = LOAD(row), v = LOAD(row + 8), x = LOAD(row + 16);
                add_products(&r, u, _mm256_srli_epi64(u, 32), factor);
                add_products(&s, v, _mm256_srli_epi64(v, 32), factor);
                add_products(&t, x, _mm256_srli_epi64(x, 32), factor);
            }
            first = closed_sums(&r, c), second = closed_sums(&s, c), third = closed_sums(&t, c);
        }
        STORE(out + i, first);
        STORE(out + i + 8, second);
        STORE(out + i + 16, third);
    }
}

AVX2 static void gather_short(uint32_t p, uint32_t *out, const int64_t *starts, const int64_t *members,
                              const uint32_t *w, const uint32_t *y, size_t j, size_t length) {
    const __m256i c = _mm256_set1_epi64x(0u - p);
    for (size_t at = 0; at < length; at += 8) {
        const size_t i = at + 8 <= length ? at : length - 8;
        __m256i total = _mm256_setzero_si256();
        for (int64_t k = starts[j]; k < starts[j + 1];) {
            const int64_t stop = starts[j + 1] - k < GROUP ? starts[j + 1] : k + GROUP;
            sums s = sums_from(total);
            for (; k < stop; k++) {
                const __m256i u = LOAD(ROW_OF(k) + i);
                add_products(&s, u, _mm256_srli_epi64(u, 32), _mm256_set1_epi32((int)w[k]));
            }
            total = closed_sums(&s, c);
        }
        STORE(out + i, total);
    }
}
#endif

static void gather_row(uint32_t p, uint32_t *out, const int64_t *starts, const int64_t *members, const uint32_t *w,
                       const uint32_t *y, size_t j, size_t length) {
    const uint32_t c = 0u - p;
#ifdef AVX2
    if (FOLDS(c) && HAS_AVX2 && length >= 8) {
        (length < SPAN ? gather_short : gather_long)(p, out, starts, members, w, y, j, length);
        return;
    }
#endif
    for (size_t i = 0; i < length; i++)
        if (FOLDS(c)) {
            SUM_OF_PRODUCTS(total, starts[j], starts[j + 1], w[k], ROW_OF(k)[i])
            out[i] = total;
        } else {
            uint64_t sum = 0;
            for (int64_t k = starts[j]; k < starts[j + 1]; k++) sum = (sum + (uint64_t)w[k] * ROW_OF(k)[i] % p) % p;
            out[i] = (uint32_t)sum;
        }
}

void gather32(const uint32_t *primes, size_t count, uint32_t *out, const int64_t *starts, const int64_t *members,
              const uint32_t *w, size_t w_step, const uint32_t *y, size_t y_step, size_t rows, size_t length) {
    const int64_t end = starts[rows];
    for (size_t b = 0; b < count; b++, w += w_step, y += y_step)
        for (size_t j = 0; j < rows; j++) {
#ifdef AHEAD
            if (members) /* rows are far apart: have those of the buckets to come fetched meanwhile */
                for (int64_t k = starts[j] + AHEAD; k < starts[j + 1] + AHEAD && k < end; k++)
                    for (size_t i = 0; i < length; i += 16) __builtin_prefetch(y + members[k] * length + i);
#endif
            gather_row(primes[b], out + (b * rows + j) * length, starts, members, w, y, j, length);
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

static inline double power_of_two(int exponent) {
    const uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* The exponent of the leading bit, and that of the lowest bit that is set, of a nonzero number that is not denormal. */
static inline int leading_bit(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 52 & 0x7FF) - 1023;
}

static inline int lowest_bit(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return leading_bit(x) - 52 + __builtin_ctzll(bits | UINT64_C(1) << 52);
}

void significance(const double *x, size_t n, int *used, int *step) {
    *used = 0, *step = INT_MAX;
    for (size_t i = 0; i < n; i++) {
        if (leading_bit(x[i]) == -1023) continue; /* zero, or denormal: as good as zero */
        const int top = leading_bit(x[i]), low = lowest_bit(x[i]);
        if (top - low > *used) *used = top - low;
        if (low < *step) *step = low;
    }
}

/* out = sign * (l[0] + l[1] 2^32 + l[2] 2^64 + l[3] 2^96) modulo p, where 2^32 = c and c^3 < 2^30 */
FAST static void limbs_modulo(uint32_t p, uint32_t l[4][TILE], const uint32_t *negative, uint32_t *out, size_t n) {
    const uint32_t c = 0u - p, cc = c * c, ccc = cc * c;
    for (size_t i = 0; i < n; i++) {
        const uint32_t rest =
            folded(l[0][i] + (uint64_t)l[1][i] * c + (uint64_t)l[2][i] * cc + (uint64_t)l[3][i] * ccc, c);
        out[i] = negative[i] && rest ? p - rest : rest;
    }
}

static void limbs_dividing(uint32_t p, uint32_t l[4][TILE], const uint32_t *negative, uint32_t *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint64_t rest = 0;
        for (int k = 4; k-- > 0;) rest = ((rest << 32) + l[k][i]) % p;
        out[i] = (uint32_t)(negative[i] && rest ? p - rest : rest);
    }
}

void encode32(const uint32_t *primes, size_t count, const double *x, const uint32_t *filler, size_t n, int f, int used,
              int finest, int coarsest, uint32_t *out) {
    uint32_t limbs[4][TILE], negative[TILE];
    for (size_t start = 0; start < n; start += TILE) {
        const size_t size = n - start < TILE ? n - start : TILE;
        for (size_t i = 0; i < size; i++) {
            const double number = x[start + i];
            const int lead = leading_bit(number);
            int grid = lead - used;
            grid = grid < finest ? finest : grid > coarsest ? coarsest : grid;
            const uint32_t *word = filler + 4 * (start + i);
            const wide drawn = (wide)((uint64_t)word[3] << 32 | word[2]) << 64 | ((uint64_t)word[1] << 32 | word[0]);
            const __int128 low = (__int128)(drawn & (((wide)1 << (grid + f)) - 1)) - ((__int128)1 << (grid + f) >> 1);
            /* x * 2^f: all 53 bits of x, shifted; what falls off at the bottom is far below the grid */
            const int shift = lead - 52 + f;
            const __int128 digits = lead == -1023 ? 0 : llrint(number * power_of_two(52 - lead));
            const __int128 value =
                low + (shift >= 0 ? digits * ((__int128)1 << shift) : shift > -64 ? digits >> -shift : 0);
            const wide sign = (wide)(value >> 127), magnitude = ((wide)value ^ sign) - sign; /* no branch: it is random */
            for (int k = 0; k < 4; k++) limbs[k][i] = (uint32_t)(magnitude >> 32 * k);
            negative[i] = (uint32_t)sign;
        }
        for (size_t b = 0; b < count; b++)
            (FOLDS(0u - primes[b]) ? limbs_modulo : limbs_dividing)(primes[b], limbs, negative, out + b * n + start, size);
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

size_t accept32(uint32_t p, uint32_t *words, size_t n) {
    const int spare = __builtin_clz(p);
    size_t kept = 0;
    for (size_t start = 0; start < n; start += TILE) {
        const size_t size = n - start < TILE ? n - start : TILE;
        if (!spare && valid_one(p, words + start, size)) { /* the usual case: no word to drop in the whole tile */
            if (kept != start) memmove(words + kept, words + start, size * sizeof *words);
            kept += size;
        } else {
            for (size_t i = start; i < start + size; i++) {
                const uint32_t word = words[i] >> spare;
                words[kept] = word;
                kept += word < p;
            }
        }
    }
    return kept;
}

void reduce32(const uint32_t *primes, size_t count, uint32_t *out, const int64_t *x, size_t n) {
    for (size_t b = 0; b < count; b++) {
        const uint32_t p = primes[b], c = 0u - p;
        for (size_t i = 0; i < n; i++) {
            const uint64_t size = x[i] < 0 ? -(uint64_t)x[i] : (uint64_t)x[i];
            const uint32_t rest = FOLDS(c) ? folded(size, c) : (uint32_t)(size % p);
            out[b * n + i] = x[i] < 0 && rest ? p - rest : rest;
        }
    }
}

/* ---------------------------------------------------------------------------------------------------- p = 2^61 - 1 */

#define P61 ((UINT64_C(1) << 61) - 1)

/* x < 2^128 - 2^67: 2^61 = 1, so the high bits are added to the low ones */
static inline uint64_t reduced61(wide x) {
    const wide once = (x & P61) + (x >> 61);                   /* < 2^68 */
    const uint64_t twice = (uint64_t)(once & P61) + (uint64_t)(once >> 61); /* < 2^61 + 2^7 */
    return twice >= P61 ? twice - P61 : twice;
}

static inline uint64_t product61(uint64_t a, uint64_t b) { return reduced61((wide)a * b); }

FAST void add61(uint64_t *acc, const uint64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint64_t sum = acc[i] + x[i];
        acc[i] = sum >= P61 ? sum - P61 : sum;
    }
}

FAST void sub61(uint64_t *acc, const uint64_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] = acc[i] >= x[i] ? acc[i] - x[i] : acc[i] + (P61 - x[i]);
}

void mul61(uint64_t *out, const uint64_t *a, const uint64_t *b, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = product61(a[i], b[i]);
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
                    wide part = sum;
                    for (; factor < stop; factor++, source++) part += (wide)*factor * (*source)[i];
                    sum = reduced61(part);
                }
                out[r * n + i] = sum;
            }
    }
}

void gather61(uint64_t *out, const int64_t *starts, const int64_t *members, const uint64_t *w, const uint64_t *y,
              size_t rows, size_t length) {
    for (size_t j = 0; j < rows; j++)
        for (size_t i = 0; i < length; i++) {
            int64_t k = starts[j];
            uint64_t sum = 0;
            while (k < starts[j + 1]) {
                const int64_t stop = starts[j + 1] - k < 32 ? starts[j + 1] : k + 32;
                wide part = sum;
                for (; k < stop; k++) part += (wide)w[k] * y[(members ? members[k] : k - starts[j]) * length + i];
                sum = reduced61(part);
            }
            out[j * length + i] = sum;
        }
}

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
