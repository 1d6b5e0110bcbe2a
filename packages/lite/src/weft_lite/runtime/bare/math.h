/* What the runtime asks of the mathematics library, for systems whose headers are not at hand. */
#ifndef WEFT_LITE_BARE_MATH_H
#define WEFT_LITE_BARE_MATH_H

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)

#define WL_MATH(name) float name##f(float);
WL_MATH(acos) WL_MATH(acosh) WL_MATH(asin) WL_MATH(asinh) WL_MATH(atan) WL_MATH(atanh) WL_MATH(ceil)
WL_MATH(cos) WL_MATH(cosh) WL_MATH(erf) WL_MATH(erfc) WL_MATH(exp) WL_MATH(expm1) WL_MATH(fabs)
WL_MATH(floor) WL_MATH(log) WL_MATH(log1p) WL_MATH(nearbyint) WL_MATH(rint) WL_MATH(round)
WL_MATH(sin) WL_MATH(sinh) WL_MATH(sqrt) WL_MATH(tan) WL_MATH(tanh) WL_MATH(trunc)
#undef WL_MATH
float atan2f(float, float);
float copysignf(float, float);
float fmaxf(float, float);
float fminf(float, float);
float fmodf(float, float);
float powf(float, float);
long lrintf(float);
long lroundf(float);
double fabs(double);
double floor(double);
double nearbyint(double);
double sqrt(double);

#ifdef WL_OWN_ROUNDING
#include "rounding.h"
#endif

#endif
