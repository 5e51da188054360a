/* The inner loops of secea. Each one is a plain loop that the compiler vectorises; see kernels.h for what they do. */

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"

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

FAST void add32(uint32_t p, uint32_t *acc, const uint32_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t room = p - x[i]; /* acc + x >= p exactly when acc >= p - x; no sum overflows */
        acc[i] = acc[i] >= room ? acc[i] - room : acc[i] + x[i];
    }
}

FAST void sub32(uint32_t p, uint32_t *acc, const uint32_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] = acc[i] >= x[i] ? acc[i] - x[i] : acc[i] + (p - x[i]);
}

static void mul32_folding(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    const uint32_t c = 0u - p;
    for (size_t i = 0; i < n; i++) out[i] = folded((uint64_t)a[i] * b[i], c);
}

#ifdef AVX2
/* Eight elements in a register are four even and four odd ones, each in the low half of a 64-bit lane after a shift. */
AVX2 static inline __m256i fold_avx2(__m256i x, __m256i c) {
    const __m256i low = _mm256_and_si256(x, _mm256_set1_epi64x(UINT32_MAX));
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

AVX2 static void mul32_avx2(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    const __m256i c = _mm256_set1_epi64x(0u - p);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i u = _mm256_loadu_si256((const __m256i *)(a + i)), v = _mm256_loadu_si256((const __m256i *)(b + i));
        const __m256i even = folded_avx2(_mm256_mul_epu32(u, v), c);
        const __m256i odd = folded_avx2(_mm256_mul_epu32(_mm256_srli_epi64(u, 32), _mm256_srli_epi64(v, 32)), c);
        _mm256_storeu_si256((__m256i *)(out + i), joined_avx2(even, odd));
    }
    mul32_folding(p, out + i, a + i, b + i, n - i);
}
#endif

void mul32(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *b, size_t n) {
    if (FOLDS(0u - p)) {
#ifdef AVX2
        if (HAS_AVX2) {
            mul32_avx2(p, out, a, b, n);
            return;
        }
#endif
        mul32_folding(p, out, a, b, n);
    } else for (size_t i = 0; i < n; i++) out[i] = (uint32_t)((uint64_t)a[i] * b[i] % p);
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

void inverse32(uint32_t p, uint32_t *out, const uint32_t *x, size_t n) {
#define PRODUCT(a, b) ((uint32_t)((uint64_t)(a) * (b) % p))
#define POWER(a) power32(p, a)
    INVERT(uint32_t, PRODUCT, POWER)
#undef PRODUCT
#undef POWER
}

/* Products of 32-bit numbers fill 64 bits: their halves are summed apart, and the sum of high halves folds at the end.
 * Fewer than 2^20 columns keep every sum within 64 bits. This does the columns from `start` on. */
static void combine32_folding(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *const *x, size_t rows,
                              size_t columns, size_t n, size_t start) {
    const uint32_t c = 0u - p;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = start; i < n; i++) {
            uint64_t low = 0, high = 0;
            for (size_t k = 0; k < columns; k++) {
                const uint64_t product = (uint64_t)a[r * columns + k] * x[k][i];
                low += (uint32_t)product;
                high += product >> 32;
            }
            out[r * n + i] = folded(fold(high, c) * c + low, c);
        }
}

#ifdef AVX2
AVX2 static inline __m256i closed_avx2(__m256i low, __m256i high, __m256i c) { /* low + 2^32 high, reduced */
    high = fold_avx2(high, c); /* < 2^33, so its halves are multiplied apart */
    const __m256i top = _mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(high, 32), c), 32);
    return folded_avx2(_mm256_add_epi64(_mm256_add_epi64(_mm256_mul_epu32(high, c), top), low), c);
}

/* Sixteen elements at a time, their sums in registers; one tile of x stays in the cache for all rows. */
AVX2 static void combine32_avx2(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *const *x, size_t rows,
                                size_t columns, size_t n) {
    const __m256i c = _mm256_set1_epi64x(0u - p), mask = _mm256_set1_epi64x(UINT32_MAX);
    const size_t whole = n - n % 16;
    for (size_t start = 0; start < whole; start += TILE) {
        const size_t end = whole - start < TILE ? whole : start + TILE;
        for (size_t r = 0; r < rows; r++)
            for (size_t i = start; i < end; i += 16) {
                __m256i low[4], high[4];
                for (int j = 0; j < 4; j++) low[j] = high[j] = _mm256_setzero_si256();
                for (size_t k = 0; k < columns; k++) {
                    const __m256i factor = _mm256_set1_epi64x(a[r * columns + k]);
                    for (int j = 0; j < 4; j += 2) {
                        const __m256i v = _mm256_loadu_si256((const __m256i *)(x[k] + i + 4 * j));
                        const __m256i even = _mm256_mul_epu32(v, factor);
                        const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(v, 32), factor);
                        low[j] = _mm256_add_epi64(low[j], _mm256_and_si256(even, mask));
                        high[j] = _mm256_add_epi64(high[j], _mm256_srli_epi64(even, 32));
                        low[j + 1] = _mm256_add_epi64(low[j + 1], _mm256_and_si256(odd, mask));
                        high[j + 1] = _mm256_add_epi64(high[j + 1], _mm256_srli_epi64(odd, 32));
                    }
                }
                for (int j = 0; j < 4; j += 2)
                    _mm256_storeu_si256(
                        (__m256i *)(out + r * n + i + 4 * j),
                        joined_avx2(closed_avx2(low[j], high[j], c), closed_avx2(low[j + 1], high[j + 1], c)));
            }
    }
    combine32_folding(p, out, a, x, rows, columns, n, whole);
}
#endif

static void combine32_dividing(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *const *x, size_t rows,
                               size_t columns, size_t n) {
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++) {
            uint64_t sum = 0;
            for (size_t k = 0; k < columns; k++) sum = (sum + (uint64_t)a[r * columns + k] * x[k][i] % p) % p;
            out[r * n + i] = (uint32_t)sum;
        }
}

void combine32(uint32_t p, uint32_t *out, const uint32_t *a, const uint32_t *const *x, size_t rows, size_t columns,
               size_t n) {
    if (!FOLDS(0u - p) || columns >= (1u << 20)) {
        combine32_dividing(p, out, a, x, rows, columns, n);
        return;
    }
#ifdef AVX2
    if (HAS_AVX2) {
        combine32_avx2(p, out, a, x, rows, columns, n);
        return;
    }
#endif
    combine32_folding(p, out, a, x, rows, columns, n, 0);
}

static void gather32_dividing(uint32_t p, uint32_t *out, const int64_t *starts, const int64_t *members,
                              const uint32_t *w, const uint32_t *y, size_t rows, size_t length) {
    for (size_t j = 0; j < rows; j++)
        for (size_t i = 0; i < length; i++) {
            uint64_t sum = 0;
            for (int64_t k = starts[j]; k < starts[j + 1]; k++) {
                const int64_t row = members ? members[k] : k - starts[j];
                sum = (sum + (uint64_t)w[k] * y[row * length + i] % p) % p;
            }
            out[j * length + i] = (uint32_t)sum;
        }
}

/* The elements from `first` to the end of each row. */
static inline void gather32_folding(uint32_t c, uint32_t *out, const int64_t *starts, const int64_t *members,
                                    const uint32_t *w, const uint32_t *y, size_t j, size_t length, size_t first) {
    for (size_t i = first; i < length; i++) {
        uint64_t low = 0, high = 0;
        for (int64_t k = starts[j]; k < starts[j + 1]; k++) {
            const int64_t row = members ? members[k] : k - starts[j];
            const uint64_t product = (uint64_t)w[k] * y[row * length + i];
            low += (uint32_t)product;
            high += product >> 32;
        }
        out[j * length + i] = folded(fold(high, c) * c + low, c);
    }
}

#ifdef AVX2
#define AHEAD 12 /* positions */

/* Sixteen elements of a row at a time; the last sixteen may overlap those before them, and are then computed twice. */
AVX2 static void gather32_avx2(uint32_t p, uint32_t *out, const int64_t *starts, const int64_t *members,
                               const uint32_t *w, const uint32_t *y, size_t rows, size_t length) {
    const __m256i c = _mm256_set1_epi64x(0u - p), mask = _mm256_set1_epi64x(UINT32_MAX);
    const int64_t end = starts[rows];
    for (size_t j = 0; j < rows; j++) {
        if (members) /* rows are far apart: have those of the buckets to come fetched meanwhile */
            for (int64_t k = starts[j] + AHEAD; k < starts[j + 1] + AHEAD && k < end; k++)
                for (size_t i = 0; i < length; i += 16) __builtin_prefetch(y + members[k] * length + i);
        if (length < 16) {
            gather32_folding(0u - p, out, starts, members, w, y, j, length, 0);
            continue;
        }
        for (size_t at = 0; at < length; at += 16) {
            const size_t i = at + 16 <= length ? at : length - 16;
            __m256i low[4], high[4];
            for (int h = 0; h < 4; h++) low[h] = high[h] = _mm256_setzero_si256();
            for (int64_t k = starts[j]; k < starts[j + 1]; k++) {
                const int64_t row = members ? members[k] : k - starts[j];
                const __m256i factor = _mm256_set1_epi64x(w[k]);
                for (int h = 0; h < 4; h += 2) {
                    const __m256i v = _mm256_loadu_si256((const __m256i *)(y + row * length + i + 4 * h));
                    const __m256i even = _mm256_mul_epu32(v, factor);
                    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(v, 32), factor);
                    low[h] = _mm256_add_epi64(low[h], _mm256_and_si256(even, mask));
                    high[h] = _mm256_add_epi64(high[h], _mm256_srli_epi64(even, 32));
                    low[h + 1] = _mm256_add_epi64(low[h + 1], _mm256_and_si256(odd, mask));
                    high[h + 1] = _mm256_add_epi64(high[h + 1], _mm256_srli_epi64(odd, 32));
                }
            }
            for (int h = 0; h < 4; h += 2)
                _mm256_storeu_si256((__m256i *)(out + j * length + i + 4 * h),
                                    joined_avx2(closed_avx2(low[h], high[h], c), closed_avx2(low[h + 1], high[h + 1], c)));
        }
    }
}
#endif

void gather32(uint32_t p, uint32_t *out, const int64_t *starts, const int64_t *members, const uint32_t *w,
              const uint32_t *y, size_t rows, size_t length) {
    if (!FOLDS(0u - p)) {
        gather32_dividing(p, out, starts, members, w, y, rows, length);
        return;
    }
#ifdef AVX2
    if (HAS_AVX2) {
        gather32_avx2(p, out, starts, members, w, y, rows, length);
        return;
    }
#endif
    for (size_t j = 0; j < rows; j++) gather32_folding(0u - p, out, starts, members, w, y, j, length, 0);
}

/* Garner: the mixed-radix digits of each element, tile by tile, then Horner's rule from the top. Above the middle the number
 * stands for a negative one, whose size has the complements as digits: nothing cancels. */
void join32(const uint32_t *primes, const uint32_t *inverses, size_t count, const uint32_t *x, double *out, size_t n,
            double scale) {
    uint32_t digits[16][TILE], factor[TILE];
    for (size_t start = 0; start < n; start += TILE) {
        const size_t size = n - start < TILE ? n - start : TILE;
        for (size_t b = 0; b < count; b++) {
            const uint32_t p = primes[b];
            memcpy(digits[b], x + b * n + start, size * sizeof **digits);
            for (size_t a = 0; a < b; a++) { /* digit = (digit - digits[a]) / primes[a] modulo p */
                const int near = primes[a] < 2 * (uint64_t)p;
                for (size_t i = 0; i < size; i++) {
                    const uint32_t other = near ? (digits[a][i] >= p ? digits[a][i] - p : digits[a][i]) : digits[a][i] % p;
                    digits[b][i] = digits[b][i] >= other ? digits[b][i] - other : digits[b][i] + (p - other);
                    factor[i] = inverses[a * count + b];
                }
                mul32(p, digits[b], digits[b], factor, size);
            }
        }
        for (size_t i = 0; i < size; i++) {
            int negative = 0;
            for (size_t b = count; b-- > 0;)
                if (digits[b][i] != (primes[b] - 1) / 2) {
                    negative = digits[b][i] > (primes[b] - 1) / 2;
                    break;
                }
            double value = 0;
            for (size_t b = count; b-- > 0;)
                value = value * primes[b] + (negative ? primes[b] - 1 - digits[b][i] : digits[b][i]);
            out[start + i] = (negative ? -(value + 1) : value) * scale;
        }
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

void encode32(const uint32_t *primes, size_t count, const double *x, const uint32_t *filler, size_t n, int f, int used,
              int finest, int coarsest, uint32_t *out) {
    for (size_t i = 0; i < n; i++) {
        const int lead = leading_bit(x[i]);
        int grid = lead - used;
        grid = grid < finest ? finest : grid > coarsest ? coarsest : grid;
        const uint32_t *word = filler + 4 * i;
        const wide drawn = (wide)((uint64_t)word[3] << 32 | word[2]) << 64 | ((uint64_t)word[1] << 32 | word[0]);
        const __int128 low = (__int128)(drawn & (((wide)1 << (grid + f)) - 1)) - ((__int128)1 << (grid + f) >> 1);
        /* x * 2^f: all 53 bits of x, shifted; what falls off at the bottom is far below the grid */
        const int shift = lead - 52 + f;
        const __int128 digits = lead == -1023 ? 0 : llrint(x[i] * power_of_two(52 - lead));
        const __int128 value = low + (shift >= 0 ? digits * ((__int128)1 << shift) : shift > -64 ? digits >> -shift : 0);
        const wide size = value < 0 ? -(wide)value : (wide)value;
        const uint32_t limb[4] = {(uint32_t)size, (uint32_t)(size >> 32), (uint32_t)(size >> 64), (uint32_t)(size >> 96)};
        for (size_t b = 0; b < count; b++) {
            const uint64_t p = primes[b], c = (0u - primes[b]); /* 2^32 = c, and c^3 < 2^30 */
            uint32_t rest;
            if (FOLDS(c)) rest = folded(limb[0] + limb[1] * c + limb[2] * (c * c) + limb[3] * (c * c * c), (uint32_t)c);
            else {
                const uint64_t word_in_p = UINT64_C(0xFFFFFFFF) % p + 1;
                uint64_t sum = 0;
                for (int l = 4; l-- > 0;) sum = (sum * word_in_p + limb[l]) % p;
                rest = (uint32_t)sum;
            }
            out[b * n + i] = (uint32_t)(value < 0 && rest ? p - rest : rest);
        }
    }
}

FAST int valid32(uint32_t p, const uint32_t *x, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= x[i] >= p;
    return !bad;
}

size_t accept32(uint32_t p, uint32_t *words, size_t n) {
    const int spare = __builtin_clz(p);
    size_t kept = 0;
    for (size_t start = 0; start < n; start += TILE) {
        const size_t size = n - start < TILE ? n - start : TILE;
        if (!spare && valid32(p, words + start, size)) { /* the usual case: no word to drop in the whole tile */
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

void reduce32(uint32_t p, uint32_t *out, const int64_t *x, size_t n) {
    const uint32_t c = 0u - p;
    for (size_t i = 0; i < n; i++) {
        const uint64_t size = x[i] < 0 ? -(uint64_t)x[i] : (uint64_t)x[i];
        const uint32_t rest = FOLDS(c) ? folded(size, c) : (uint32_t)(size % p);
        out[i] = x[i] < 0 && rest ? p - rest : rest;
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
