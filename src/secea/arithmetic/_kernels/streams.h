/* Key streams, noise and fill: AES-256, in the words and counter blocks that portable.py defines. `level` says which
 * instructions are used: 1 AES-NI, 2 VAES on 256 bits, 3 on 512, at most what aes_level gives; functions that take one need at
 * least 1. Vectors are those of kernels.h. `keys` are 32 bytes each. This file is read by the compiler and by cffi: plain
 * declarations only. */

/* 0 where the processor has no AES instructions */
int aes_level(void);

/* acc += the streams of all `total` keys, but the first `negative` of them are subtracted */
void add_streams32(int level, const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, size_t n,
                   const uint8_t *keys, size_t negative, size_t total, uint32_t lane);
void add_streams64(int level, unsigned bits, uint64_t *acc, size_t n, const uint8_t *keys, size_t negative, size_t total,
                   uint32_t lane);

/* out[row] = the first elements of the stream of keys[row], all of them at least `least`. out is [count][rows][length]. */
void row_streams32(int level, const uint32_t *primes, size_t count, uint32_t *out, const uint8_t *keys, size_t rows,
                   size_t length, uint32_t lane, uint32_t least);
void row_streams64(int level, unsigned bits, uint64_t *out, const uint8_t *keys, size_t rows, size_t length, uint32_t lane,
                   uint64_t least);

/* acc += noise: s >= 1 numbers of `parts` digits each, and one number below wide_range; s * parts + 2 <= 1024. `fits`: the
 * noise is below 2^63. */
void add_noise32(int level, const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, size_t n,
                 const uint8_t *seed, uint32_t lane, size_t s, const uint32_t *digits, size_t parts, uint64_t wide_range,
                 int fits);
void add_noise64(int level, unsigned bits, uint64_t *acc, size_t n, const uint8_t *seed, uint32_t lane, size_t s,
                 const uint32_t *digits, size_t parts, uint64_t wide_range, int fits);

/* out[row] = sum over j < length of weights[j] * x[row][j]; rows of x are row_step elements apart, out is [count][rows] */
void weighted_sums32(const uint32_t *primes, size_t count, uint32_t *out, const uint32_t *x, size_t x_step,
                     size_t row_step, const uint32_t *weights, size_t rows, size_t length);
void weighted_sums64(unsigned bits, uint64_t *out, const uint64_t *x, size_t row_step, const uint64_t *weights,
                     size_t rows, size_t length);

/* out[places[row]] = factors[row] * x[row] + added[row]. Rows of out and x lie row_steps apart, those of `added` one after the
 * other for each prime; factors are [count][rows]. Where places is NULL they are 0, 1, ...; where `added` is, nothing is added.
 * out may be x, then without places. */
void scaled_rows32(const uint32_t *primes, size_t count, uint32_t *out, size_t out_step, size_t out_row_step,
                   const int64_t *places, const uint32_t *x, size_t x_step, size_t x_row_step, const uint32_t *factors,
                   const uint32_t *added, size_t rows, size_t length);
void scaled_rows64(unsigned bits, uint64_t *out, size_t out_row_step, const int64_t *places, const uint64_t *x,
                   size_t x_row_step, const uint64_t *factors, const uint64_t *added, size_t rows, size_t length);

/* acc += factor * x for signed x; there is a factor for each prime */
void add_scaled32(const uint32_t *primes, size_t count, uint32_t *acc, size_t acc_step, const int64_t *x,
                  const uint32_t *factors, size_t n);
void add_scaled64(unsigned bits, uint64_t *acc, const int64_t *x, uint64_t factor, size_t n);

/* out = rint(x * 2^f) and the fill below the grid of x, for rows of `dim` numbers. There are (s + 3) / 4 keys for the s
 * numbers, and one for the grid's; at most 16. The grid is the larger of step[row] and 2^(e - used[row]), e the exponent of the
 * leading bit of x, but at most `cap`; cap * 2^f < 2^59, f <= 1000. Returns 0 if a number is not below 2^61 after scaling, or is
 * none; then out is of no use. */
int encode_filled(int level, const double *x, const uint64_t *entities, size_t rows, size_t dim, const uint8_t *keys,
                  size_t blocks, int f, size_t s, uint32_t w, const int32_t *used, const double *step, double cap,
                  int64_t *out);
