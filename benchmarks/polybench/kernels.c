/* The kernels as PolyBench/C 4.2 defines them: the peer of the operators beside this file.

   Each takes its sizes in the order of Kernel.sizes, the operator's inputs, and the results.  Where PolyBench works in place, the
   input is copied to the result first: the operators leave their inputs alone as well.  Temporaries are made once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *scratch(int place, size_t bytes) {
  static void *blocks[8];
  static size_t sizes[8];
  if (sizes[place] < bytes) {
    free(blocks[place]);
    blocks[place] = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(blocks[place], 0, bytes);
    sizes[place] = bytes;
  }
  return blocks[place];
}
#define MAT(name, place, M, N) double (*restrict name)[N] = scratch(place, sizeof(double) * (M) * (N))
#define VEC(name, place, N) double *restrict name = scratch(place, sizeof(double) * (N))
#define FOR(i, from, to) for (int i = (from); i < (to); i++)
#define DOWN(i, from, to) for (int i = (from); i >= (to); i--)
#define COPY(to, from, N) memcpy(to, from, sizeof(double) * (N))
#define IN2(A, M, N) const double A[restrict M][N]
#define OUT2(A, M, N) double A[restrict M][N]
#define IN1(x) const double *restrict x
#define OUT1(x) double *restrict x

void k_2mm(int NI, int NJ, int NK, int NL, double alpha, double beta, IN2(A, NI, NK), IN2(B, NK, NJ), IN2(C, NJ, NL),
           IN2(D, NI, NL), OUT2(E, NI, NL)) {
  MAT(tmp, 0, NI, NJ);
  COPY(E, D, NI * NL);
  FOR(i, 0, NI) FOR(j, 0, NJ) {
    tmp[i][j] = 0.0;
    FOR(k, 0, NK) tmp[i][j] += alpha * A[i][k] * B[k][j];
  }
  FOR(i, 0, NI) FOR(j, 0, NL) {
    E[i][j] *= beta;
    FOR(k, 0, NJ) E[i][j] += tmp[i][k] * C[k][j];
  }
}
void k_3mm(int NI, int NJ, int NK, int NL, int NM, IN2(A, NI, NK), IN2(B, NK, NJ), IN2(C, NJ, NM), IN2(D, NM, NL),
           OUT2(G, NI, NL)) {
  MAT(E, 0, NI, NJ);
  MAT(F, 1, NJ, NL);
  FOR(i, 0, NI) FOR(j, 0, NJ) {
    E[i][j] = 0.0;
    FOR(k, 0, NK) E[i][j] += A[i][k] * B[k][j];
  }
  FOR(i, 0, NJ) FOR(j, 0, NL) {
    F[i][j] = 0.0;
    FOR(k, 0, NM) F[i][j] += C[i][k] * D[k][j];
  }
  FOR(i, 0, NI) FOR(j, 0, NL) {
    G[i][j] = 0.0;
    FOR(k, 0, NJ) G[i][j] += E[i][k] * F[k][j];
  }
}
void k_atax(int M, int N, IN2(A, M, N), IN1(x), OUT1(y)) {
  VEC(tmp, 0, M);
  FOR(i, 0, N) y[i] = 0;
  FOR(i, 0, M) {
    tmp[i] = 0.0;
    FOR(j, 0, N) tmp[i] = tmp[i] + A[i][j] * x[j];
    FOR(j, 0, N) y[j] = y[j] + A[i][j] * tmp[i];
  }
}
void k_bicg(int M, int N, IN2(A, N, M), IN1(p), IN1(r), OUT1(s), OUT1(q)) {
  FOR(i, 0, M) s[i] = 0;
  FOR(i, 0, N) {
    q[i] = 0.0;
    FOR(j, 0, M) {
      s[j] = s[j] + r[i] * A[i][j];
      q[i] = q[i] + A[i][j] * p[j];
    }
  }
}
void k_mvt(int N, IN1(x1), IN1(x2), IN1(y), IN1(z), IN2(A, N, N), OUT1(w1), OUT1(w2)) {
  COPY(w1, x1, N);
  COPY(w2, x2, N);
  FOR(i, 0, N) FOR(j, 0, N) w1[i] = w1[i] + A[i][j] * y[j];
  FOR(i, 0, N) FOR(j, 0, N) w2[i] = w2[i] + A[j][i] * z[j];
}
void k_gemver(int N, double alpha, double beta, IN2(A, N, N), IN1(u1), IN1(v1), IN1(u2), IN1(v2), IN1(y), IN1(z), OUT1(w)) {
  MAT(B, 0, N, N);
  VEC(x, 1, N);
  FOR(i, 0, N) x[i] = w[i] = 0.0;
  FOR(i, 0, N) FOR(j, 0, N) B[i][j] = A[i][j] + u1[i] * v1[j] + u2[i] * v2[j];
  FOR(i, 0, N) FOR(j, 0, N) x[i] = x[i] + beta * B[j][i] * y[j];
  FOR(i, 0, N) x[i] = x[i] + z[i];
  FOR(i, 0, N) FOR(j, 0, N) w[i] = w[i] + alpha * B[i][j] * x[j];
}
void k_gesummv(int N, double alpha, double beta, IN2(A, N, N), IN2(B, N, N), IN1(x), OUT1(y)) {
  VEC(tmp, 0, N);
  FOR(i, 0, N) {
    tmp[i] = 0.0;
    y[i] = 0.0;
    FOR(j, 0, N) {
      tmp[i] = A[i][j] * x[j] + tmp[i];
      y[i] = B[i][j] * x[j] + y[i];
    }
    y[i] = alpha * tmp[i] + beta * y[i];
  }
}
void k_doitgen(int NQ, int NR, int NP, const double A[restrict NR][NQ][NP], IN2(C, NP, NP), double B[restrict NR][NQ][NP]) {
  VEC(sum, 0, NP);
  FOR(r, 0, NR) FOR(q, 0, NQ) {
    FOR(p, 0, NP) {
      sum[p] = 0.0;
      FOR(s, 0, NP) sum[p] += A[r][q][s] * C[s][p];
    }
    FOR(p, 0, NP) B[r][q][p] = sum[p];
  }
}
void k_gemm(int NI, int NJ, int NK, double alpha, double beta, IN2(C, NI, NJ), IN2(A, NI, NK), IN2(B, NK, NJ), OUT2(D, NI, NJ)) {
  COPY(D, C, NI * NJ);
  FOR(i, 0, NI) {
    FOR(j, 0, NJ) D[i][j] *= beta;
    FOR(k, 0, NK) FOR(j, 0, NJ) D[i][j] += alpha * A[i][k] * B[k][j];
  }
}
void k_symm(int M, int N, double alpha, double beta, IN2(C, M, N), IN2(A, M, M), IN2(B, M, N), OUT2(D, M, N)) {
  COPY(D, C, M * N);
  FOR(i, 0, M) FOR(j, 0, N) {
    double temp2 = 0;
    FOR(k, 0, i) {
      D[k][j] += alpha * B[i][j] * A[i][k];
      temp2 += B[k][j] * A[i][k];
    }
    D[i][j] = beta * D[i][j] + alpha * B[i][j] * A[i][i] + alpha * temp2;
  }
}
void k_syrk(int M, int N, double alpha, double beta, IN2(C, N, N), IN2(A, N, M), OUT2(D, N, N)) {
  COPY(D, C, N * N);
  FOR(i, 0, N) {
    FOR(j, 0, i + 1) D[i][j] *= beta;
    FOR(k, 0, M) FOR(j, 0, i + 1) D[i][j] += alpha * A[i][k] * A[j][k];
  }
}
void k_syr2k(int M, int N, double alpha, double beta, IN2(C, N, N), IN2(A, N, M), IN2(B, N, M), OUT2(D, N, N)) {
  COPY(D, C, N * N);
  FOR(i, 0, N) {
    FOR(j, 0, i + 1) D[i][j] *= beta;
    FOR(k, 0, M) FOR(j, 0, i + 1) D[i][j] += A[j][k] * alpha * B[i][k] + B[j][k] * alpha * A[i][k];
  }
}
void k_trmm(int M, int N, double alpha, IN2(A, M, M), IN2(B, M, N), OUT2(D, M, N)) {
  COPY(D, B, M * N);
  FOR(i, 0, M) FOR(j, 0, N) {
    FOR(k, i + 1, M) D[i][j] += A[k][i] * D[k][j];
    D[i][j] = alpha * D[i][j];
  }
}
void k_cholesky(int N, IN2(A, N, N), OUT2(L, N, N)) {
  COPY(L, A, N * N);
  FOR(i, 0, N) {
    FOR(j, 0, i) {
      FOR(k, 0, j) L[i][j] -= L[i][k] * L[j][k];
      L[i][j] /= L[j][j];
    }
    FOR(k, 0, i) L[i][i] -= L[i][k] * L[i][k];
    L[i][i] = sqrt(L[i][i]);
    FOR(j, i + 1, N) L[i][j] = 0.0;
  }
}
static void factorise(int N, OUT2(F, N, N)) {
  FOR(i, 0, N) {
    FOR(j, 0, i) {
      FOR(k, 0, j) F[i][j] -= F[i][k] * F[k][j];
      F[i][j] /= F[j][j];
    }
    FOR(j, i, N) FOR(k, 0, i) F[i][j] -= F[i][k] * F[k][j];
  }
}
void k_lu(int N, IN2(A, N, N), OUT2(F, N, N)) {
  COPY(F, A, N * N);
  factorise(N, F);
}
void k_ludcmp(int N, IN2(A, N, N), IN1(b), OUT1(x)) {
  MAT(F, 0, N, N);
  VEC(y, 1, N);
  COPY(F, A, N * N);
  FOR(i, 0, N) {
    FOR(j, 0, i) {
      double w = F[i][j];
      FOR(k, 0, j) w -= F[i][k] * F[k][j];
      F[i][j] = w / F[j][j];
    }
    FOR(j, i, N) {
      double w = F[i][j];
      FOR(k, 0, i) w -= F[i][k] * F[k][j];
      F[i][j] = w;
    }
  }
  FOR(i, 0, N) {
    double w = b[i];
    FOR(j, 0, i) w -= F[i][j] * y[j];
    y[i] = w;
  }
  DOWN(i, N - 1, 0) {
    double w = y[i];
    FOR(j, i + 1, N) w -= F[i][j] * x[j];
    x[i] = w / F[i][i];
  }
}
void k_trisolv(int N, IN2(L, N, N), IN1(b), OUT1(x)) {
  FOR(i, 0, N) {
    x[i] = b[i];
    FOR(j, 0, i) x[i] -= L[i][j] * x[j];
    x[i] = x[i] / L[i][i];
  }
}
void k_durbin(int N, IN1(r), OUT1(y)) {
  VEC(z, 0, N);
  y[0] = -r[0];
  double beta = 1.0, alpha = -r[0];
  FOR(k, 1, N) {
    beta = (1 - alpha * alpha) * beta;
    double sum = 0.0;
    FOR(i, 0, k) sum += r[k - i - 1] * y[i];
    alpha = -(r[k] + sum) / beta;
    FOR(i, 0, k) z[i] = y[i] + alpha * y[k - i - 1];
    FOR(i, 0, k) y[i] = z[i];
    y[k] = alpha;
  }
}
/* PolyBench's matrix has more columns than rows, so that the last columns of Q are rounding errors; here it stands upright. */
void k_gramschmidt(int M, int N, IN2(A, N, M), OUT2(Q, N, M), OUT2(R, M, M)) {
  MAT(V, 0, N, M);
  COPY(V, A, M * N);
  FOR(k, 0, M) {
    double nrm = 0.0;
    FOR(i, 0, N) nrm += V[i][k] * V[i][k];
    R[k][k] = sqrt(nrm);
    FOR(j, 0, k) R[k][j] = 0.0;
    FOR(i, 0, N) Q[i][k] = V[i][k] / R[k][k];
    FOR(j, k + 1, M) {
      R[k][j] = 0.0;
      FOR(i, 0, N) R[k][j] += Q[i][k] * V[i][j];
      FOR(i, 0, N) V[i][j] = V[i][j] - Q[i][k] * R[k][j];
    }
  }
}
void k_correlation(int M, int N, IN2(D, N, M), OUT2(C, M, M)) {
  MAT(X, 0, N, M);
  VEC(mean, 1, M);
  VEC(dev, 2, M);
  COPY(X, D, M * N);
  FOR(j, 0, M) {
    mean[j] = 0.0;
    FOR(i, 0, N) mean[j] += X[i][j];
    mean[j] /= N;
  }
  FOR(j, 0, M) {
    dev[j] = 0.0;
    FOR(i, 0, N) dev[j] += (X[i][j] - mean[j]) * (X[i][j] - mean[j]);
    dev[j] = sqrt(dev[j] / N);
    dev[j] = dev[j] <= 0.1 ? 1.0 : dev[j];
  }
  FOR(i, 0, N) FOR(j, 0, M) {
    X[i][j] -= mean[j];
    X[i][j] /= sqrt((double)N) * dev[j];
  }
  FOR(i, 0, M - 1) {
    C[i][i] = 1.0;
    FOR(j, i + 1, M) {
      C[i][j] = 0.0;
      FOR(k, 0, N) C[i][j] += X[k][i] * X[k][j];
      C[j][i] = C[i][j];
    }
  }
  C[M - 1][M - 1] = 1.0;
}
void k_covariance(int M, int N, IN2(D, N, M), OUT2(C, M, M)) {
  MAT(X, 0, N, M);
  VEC(mean, 1, M);
  COPY(X, D, M * N);
  FOR(j, 0, M) {
    mean[j] = 0.0;
    FOR(i, 0, N) mean[j] += X[i][j];
    mean[j] /= N;
  }
  FOR(i, 0, N) FOR(j, 0, M) X[i][j] -= mean[j];
  FOR(i, 0, M) FOR(j, i, M) {
    C[i][j] = 0.0;
    FOR(k, 0, N) C[i][j] += X[k][i] * X[k][j];
    C[i][j] /= N - 1.0;
    C[j][i] = C[i][j];
  }
}
void k_deriche(int W, int H, double a1, double a2, double a3, double a4, double a5, double a6, double a7, double a8, double b1,
               double b2, IN2(X, W, H), OUT2(Y, W, H)) {
  MAT(y1, 0, W, H);
  MAT(y2, 1, W, H);
  FOR(i, 0, W) {
    double ym1 = 0, ym2 = 0, xm1 = 0;
    FOR(j, 0, H) {
      y1[i][j] = a1 * X[i][j] + a2 * xm1 + b1 * ym1 + b2 * ym2;
      xm1 = X[i][j];
      ym2 = ym1;
      ym1 = y1[i][j];
    }
  }
  FOR(i, 0, W) {
    double yp1 = 0, yp2 = 0, xp1 = 0, xp2 = 0;
    DOWN(j, H - 1, 0) {
      y2[i][j] = a3 * xp1 + a4 * xp2 + b1 * yp1 + b2 * yp2;
      xp2 = xp1;
      xp1 = X[i][j];
      yp2 = yp1;
      yp1 = y2[i][j];
    }
  }
  FOR(i, 0, W) FOR(j, 0, H) Y[i][j] = y1[i][j] + y2[i][j];
  FOR(j, 0, H) {
    double tm1 = 0, ym1 = 0, ym2 = 0;
    FOR(i, 0, W) {
      y1[i][j] = a5 * Y[i][j] + a6 * tm1 + b1 * ym1 + b2 * ym2;
      tm1 = Y[i][j];
      ym2 = ym1;
      ym1 = y1[i][j];
    }
  }
  FOR(j, 0, H) {
    double tp1 = 0, tp2 = 0, yp1 = 0, yp2 = 0;
    DOWN(i, W - 1, 0) {
      y2[i][j] = a7 * tp1 + a8 * tp2 + b1 * yp1 + b2 * yp2;
      tp2 = tp1;
      tp1 = Y[i][j];
      yp2 = yp1;
      yp1 = y2[i][j];
    }
  }
  FOR(i, 0, W) FOR(j, 0, H) Y[i][j] = y1[i][j] + y2[i][j];
}
void k_floyd_warshall(int N, const int A[restrict N][N], int D[restrict N][N]) {
  memcpy(D, A, sizeof(int) * N * N);
  FOR(k, 0, N) FOR(i, 0, N) FOR(j, 0, N) D[i][j] = D[i][j] < D[i][k] + D[k][j] ? D[i][j] : D[i][k] + D[k][j];
}
#define MAX(a, b) ((a) >= (b) ? (a) : (b))
void k_nussinov(int N, const int *restrict base, int T[restrict N][N]) {
  memset(T, 0, sizeof(int) * N * N);
  DOWN(i, N - 1, 0) FOR(j, i + 1, N) {
    T[i][j] = MAX(T[i][j], T[i][j - 1]);
    if (i + 1 < N) T[i][j] = MAX(T[i][j], T[i + 1][j]);
    if (i + 1 < N) {
      if (i < j - 1)
        T[i][j] = MAX(T[i][j], T[i + 1][j - 1] + (base[i] + base[j] == 3 ? 1 : 0));
      else
        T[i][j] = MAX(T[i][j], T[i + 1][j - 1]);
    }
    FOR(k, i + 1, j) T[i][j] = MAX(T[i][j], T[i][k] + T[k + 1][j]);
  }
}
void k_adi(int T, int N, double a, double b, double c, double d, double e, double f, IN2(X, N, N), IN1(steps), OUT2(u, N, N)) {
  MAT(v, 0, N, N);
  MAT(p, 1, N, N);
  MAT(q, 2, N, N);
  COPY(u, X, N * N);
  FOR(t, 0, T) {
    FOR(i, 1, N - 1) {
      v[0][i] = 1.0;
      p[i][0] = 0.0;
      q[i][0] = v[0][i];
      FOR(j, 1, N - 1) {
        p[i][j] = -c / (a * p[i][j - 1] + b);
        q[i][j] = (-d * u[j][i - 1] + (1.0 + 2.0 * d) * u[j][i] - f * u[j][i + 1] - a * q[i][j - 1]) / (a * p[i][j - 1] + b);
      }
      v[N - 1][i] = 1.0;
      DOWN(j, N - 2, 1) v[j][i] = p[i][j] * v[j + 1][i] + q[i][j];
    }
    FOR(i, 1, N - 1) {
      u[i][0] = 1.0;
      p[i][0] = 0.0;
      q[i][0] = u[i][0];
      FOR(j, 1, N - 1) {
        p[i][j] = -f / (d * p[i][j - 1] + e);
        q[i][j] = (-a * v[i - 1][j] + (1.0 + 2.0 * a) * v[i][j] - c * v[i + 1][j] - d * q[i][j - 1]) / (d * p[i][j - 1] + e);
      }
      u[i][N - 1] = 1.0;
      DOWN(j, N - 2, 1) u[i][j] = p[i][j] * u[i][j + 1] + q[i][j];
    }
  }
}
void k_fdtd_2d(int T, int NX, int NY, IN2(fx, NX, NY), IN2(fy, NX, NY), IN2(gz, NX, NY), IN1(source), OUT2(ex, NX, NY),
               OUT2(ey, NX, NY), OUT2(hz, NX, NY)) {
  COPY(ex, fx, NX * NY);
  COPY(ey, fy, NX * NY);
  COPY(hz, gz, NX * NY);
  FOR(t, 0, T) {
    FOR(j, 0, NY) ey[0][j] = source[t];
    FOR(i, 1, NX) FOR(j, 0, NY) ey[i][j] = ey[i][j] - 0.5 * (hz[i][j] - hz[i - 1][j]);
    FOR(i, 0, NX) FOR(j, 1, NY) ex[i][j] = ex[i][j] - 0.5 * (hz[i][j] - hz[i][j - 1]);
    FOR(i, 0, NX - 1) FOR(j, 0, NY - 1) hz[i][j] = hz[i][j] - 0.7 * (ex[i][j + 1] - ex[i][j] + ey[i + 1][j] - ey[i][j]);
  }
}
static void heat_sweep(int N, const double A[restrict N][N][N], double B[restrict N][N][N]) {
  FOR(i, 1, N - 1) FOR(j, 1, N - 1) FOR(k, 1, N - 1)
    B[i][j][k] = 0.125 * (A[i + 1][j][k] - 2.0 * A[i][j][k] + A[i - 1][j][k])
               + 0.125 * (A[i][j + 1][k] - 2.0 * A[i][j][k] + A[i][j - 1][k])
               + 0.125 * (A[i][j][k + 1] - 2.0 * A[i][j][k] + A[i][j][k - 1]) + A[i][j][k];
}
void k_heat_3d(int T, int N, const double X[restrict N][N][N], IN1(steps), double A[restrict N][N][N]) {
  double (*restrict B)[N][N] = scratch(0, sizeof(double) * N * N * N);
  COPY(A, X, N * N * N);
  COPY(B, X, N * N * N);
  FOR(t, 0, T) {
    heat_sweep(N, A, B);
    heat_sweep(N, B, A);
  }
}
void k_jacobi_1d(int T, int N, IN1(X), IN1(steps), OUT1(A)) {
  VEC(B, 0, N);
  COPY(A, X, N);
  COPY(B, X, N);
  FOR(t, 0, T) {
    FOR(i, 1, N - 1) B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1]);
    FOR(i, 1, N - 1) A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1]);
  }
}
void k_jacobi_2d(int T, int N, IN2(X, N, N), IN1(steps), OUT2(A, N, N)) {
  MAT(B, 0, N, N);
  COPY(A, X, N * N);
  COPY(B, X, N * N);
  FOR(t, 0, T) {
    FOR(i, 1, N - 1) FOR(j, 1, N - 1) B[i][j] = 0.2 * (A[i][j] + A[i][j - 1] + A[i][j + 1] + A[i + 1][j] + A[i - 1][j]);
    FOR(i, 1, N - 1) FOR(j, 1, N - 1) A[i][j] = 0.2 * (B[i][j] + B[i][j - 1] + B[i][j + 1] + B[i + 1][j] + B[i - 1][j]);
  }
}
void k_seidel_2d(int T, int N, IN2(X, N, N), IN1(steps), OUT2(A, N, N)) {
  COPY(A, X, N * N);
  FOR(t, 0, T) FOR(i, 1, N - 1) FOR(j, 1, N - 1)
    A[i][j] = (A[i - 1][j - 1] + A[i - 1][j] + A[i - 1][j + 1] + A[i][j - 1] + A[i][j] + A[i][j + 1] + A[i + 1][j - 1]
               + A[i + 1][j] + A[i + 1][j + 1]) / 9.0;
}
