// Update rules of optimizers, over all elements of a variable and its slots.
//
// Arguments: the variables, the gradient, the rule's numbers by pointer (nobody waits to look at
// them), its attribute if it has one, the size.
#include "element.cuh"

#define NUMBER(name) const W name = widened(*name##_)

// sign(value) * max(|value| - by, 0)
__device__ inline W shrunk(W value, W by)
{
    const W rest = fabs(value) - by, size = rest < 0 ? (W)0 : rest;
    return value > 0 ? size : value < 0 ? -size : value * size;
}

// The element of `at`, changed by a part of the way to `value`.
__device__ inline W nearer(W at, W value, W part) { return at + (value - at) * part; }

extern "C" __global__ void gradient_descent(T* var, const T* grad, const T* rate_, I size)
{
    NUMBER(rate);
    const I i = element();
    if (i < size) put(var + i, widened(var[i]) - widened(grad[i]) * rate);
}

extern "C" __global__ void proximal_gradient_descent(
    T* var, const T* grad, const T* rate_, const T* l1_, const T* l2_, I size)
{
    NUMBER(rate); NUMBER(l1); NUMBER(l2);
    const I i = element();
    if (i >= size) return;
    W value = widened(var[i]) - widened(grad[i]) * rate;
    if (l1 > 0) value = shrunk(value, rate * l1);
    put(var + i, value / (1 + rate * l2));
}

extern "C" __global__ void momentum(
    T* var, T* accum, const T* grad, const T* rate_, const T* part_, I nesterov, I size)
{
    NUMBER(rate); NUMBER(part);
    const I i = element();
    if (i >= size) return;
    const W g = widened(grad[i]), sum = widened(accum[i]) * part + g;
    put(accum + i, sum);
    put(var + i, widened(var[i]) - (nesterov ? sum * part + g : sum) * rate);
}

__device__ inline void adagrad_element(
    T* var, T* accum, const T* grad, W rate, W epsilon, I update_slots, I i)
{
    const W g = widened(grad[i]);
    W sum = widened(accum[i]);
    if (update_slots) {
        sum += g * g;
        put(accum + i, sum);
    }
    put(var + i, widened(var[i]) - g * rate / (sqrt(sum) + epsilon));
}

extern "C" __global__ void adagrad(
    T* var, T* accum, const T* grad, const T* rate_, I update_slots, I size)
{
    NUMBER(rate);
    const I i = element();
    if (i < size) adagrad_element(var, accum, grad, rate, 0, update_slots, i);
}

extern "C" __global__ void adagrad_v2(
    T* var, T* accum, const T* grad, const T* rate_, const T* epsilon_, I update_slots, I size)
{
    NUMBER(rate); NUMBER(epsilon);
    const I i = element();
    if (i < size) adagrad_element(var, accum, grad, rate, epsilon, update_slots, i);
}

extern "C" __global__ void proximal_adagrad(
    T* var, T* accum, const T* grad, const T* rate_, const T* l1_, const T* l2_, I size)
{
    NUMBER(rate); NUMBER(l1); NUMBER(l2);
    const I i = element();
    if (i >= size) return;
    const W g = widened(grad[i]), sum = widened(accum[i]) + g * g, step = rate / sqrt(sum);
    W value = widened(var[i]) - g * step;
    if (l1 > 0) value = shrunk(value, step * l1);
    put(accum + i, sum);
    put(var + i, value / (step * l2 + 1));
}

extern "C" __global__ void adagrad_da(
    T* var, T* sums, T* squares, const T* grad, const T* rate_, const T* l1_, const T* l2_,
    const long long* steps, I size)
{
    NUMBER(rate); NUMBER(l1); NUMBER(l2);
    const I i = element();
    if (i >= size) return;
    const W count = (W)*steps, g = widened(grad[i]);
    const W sum = widened(sums[i]) + g, square = widened(squares[i]) + g * g;
    put(sums + i, sum);
    put(squares + i, square);
    const W pull = l1 > 0 ? shrunk(sum, l1 * count) : sum;
    put(var + i, -rate * pull / (sqrt(square) + l2 * count * rate));
}

extern "C" __global__ void adadelta(
    T* var, T* accum, T* updates, const T* grad, const T* rate_, const T* rho_, const T* epsilon_,
    I size)
{
    NUMBER(rate); NUMBER(rho); NUMBER(epsilon);
    const I i = element();
    if (i >= size) return;
    const W g = widened(grad[i]), before = widened(updates[i]);
    const W square = widened(accum[i]) * rho + g * g * (1 - rho);
    const W update = sqrt(before + epsilon) / sqrt(square + epsilon) * g;
    put(accum + i, square);
    put(var + i, widened(var[i]) - update * rate);
    put(updates + i, before * rho + update * update * (1 - rho));
}

__device__ inline W raised(W value, W power)
{
    return power == (W)0.5 ? sqrt(value) : pow(value, power);
}

__device__ inline void ftrl_element(
    T* var, T* accum, T* linear, const T* grad, W rate, W l1, W l2, W shrinkage, W power, I i)
{
    const W g = widened(grad[i]), old = widened(accum[i]), sum = old + g * g, at = widened(var[i]);
    const W root = raised(sum, -power);
    const W moved = (root - raised(old, -power)) / rate * at;
    const W slope = widened(linear[i]) + g - moved + at * 2 * shrinkage;
    const W value = ((slope > 0 ? l1 : -l1) - slope) / (root / rate + 2 * l2);
    put(accum + i, sum);
    put(linear + i, slope);
    put(var + i, fabs(slope) > l1 ? value : (W)0);
}

extern "C" __global__ void ftrl(
    T* var, T* accum, T* linear, const T* grad, const T* rate_, const T* l1_, const T* l2_,
    const T* power_, I size)
{
    NUMBER(rate); NUMBER(l1); NUMBER(l2); NUMBER(power);
    const I i = element();
    if (i < size) ftrl_element(var, accum, linear, grad, rate, l1, l2, 0, power, i);
}

extern "C" __global__ void ftrl_v2(
    T* var, T* accum, T* linear, const T* grad, const T* rate_, const T* l1_, const T* l2_,
    const T* shrinkage_, const T* power_, I size)
{
    NUMBER(rate); NUMBER(l1); NUMBER(l2); NUMBER(shrinkage); NUMBER(power);
    const I i = element();
    if (i < size) ftrl_element(var, accum, linear, grad, rate, l1, l2, shrinkage, power, i);
}

extern "C" __global__ void adam(
    T* var, T* m, T* v, const T* grad, const T* power1_, const T* power2_, const T* rate_,
    const T* beta1_, const T* beta2_, const T* epsilon_, I nesterov, I size)
{
    NUMBER(power1); NUMBER(power2); NUMBER(rate); NUMBER(beta1); NUMBER(beta2); NUMBER(epsilon);
    const I i = element();
    if (i >= size) return;
    const W step = rate * sqrt(1 - power2) / (1 - power1), g = widened(grad[i]);
    const W mean = nearer(widened(m[i]), g, 1 - beta1);
    const W square = nearer(widened(v[i]), g * g, 1 - beta2);
    const W move = nesterov ? mean * beta1 + g * (1 - beta1) : mean;
    put(m + i, mean);
    put(v + i, square);
    put(var + i, widened(var[i]) - move * step / (sqrt(square) + epsilon));
}

extern "C" __global__ void rmsprop(
    T* var, T* squares, T* moves, const T* grad, const T* rate_, const T* rho_, const T* momentum_,
    const T* epsilon_, I size)
{
    NUMBER(rate); NUMBER(rho); NUMBER(momentum); NUMBER(epsilon);
    const I i = element();
    if (i >= size) return;
    const W g = widened(grad[i]), square = nearer(widened(squares[i]), g * g, 1 - rho);
    const W move = widened(moves[i]) * momentum + g * rate / sqrt(square + epsilon);
    put(squares + i, square);
    put(moves + i, move);
    put(var + i, widened(var[i]) - move);
}

extern "C" __global__ void centered_rmsprop(
    T* var, T* means, T* squares, T* moves, const T* grad, const T* rate_, const T* rho_,
    const T* momentum_, const T* epsilon_, I size)
{
    NUMBER(rate); NUMBER(rho); NUMBER(momentum); NUMBER(epsilon);
    const I i = element();
    if (i >= size) return;
    const W g = widened(grad[i]), square = nearer(widened(squares[i]), g * g, 1 - rho);
    const W mean = nearer(widened(means[i]), g, 1 - rho);
    const W move = widened(moves[i]) * momentum + g * rate / sqrt(square - mean * mean + epsilon);
    put(means + i, mean);
    put(squares + i, square);
    put(moves + i, move);
    put(var + i, widened(var[i]) - move);
}
