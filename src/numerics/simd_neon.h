// Ops on four 128-bit registers. What each operation means is written in simd_generic.h.
#pragma once

#include <arm_neon.h>

#include "numerics/cached.h"
#include "numerics/functions.h"

namespace cohort::numerics {

struct NeonOps {
  struct F {
    float32x4_t v[4];
  };
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 6;  // 24 of 32 registers

  template <class Function>
  static F make(Function function) {
    return {{function(0), function(1), function(2), function(3)}};
  }
  static F set(float x) {
    return make([&](int) { return vdupq_n_f32(x); });
  }
  static F add(F a, F b) {
    return make([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
  }
  static F sub(F a, F b) {
    return make([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
  }
  static F mul(F a, F b) {
    return make([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
  }
  static F div(F a, F b) {
    return make([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
  }
  static F fma(F a, F b, F c) {
    return make([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  static F neg(F a) {
    return make([&](int i) { return vnegq_f32(a.v[i]); });
  }
  static F rint(F a) {
    return make([&](int i) { return vrndnq_f32(a.v[i]); });
  }
  static F exp2_int(F n) {
    return make([&](int i) {
      const int32x4_t biased = vaddq_s32(vcvtq_s32_f32(n.v[i]), vdupq_n_s32(127));
      return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
    });
  }
  static F clamp_exp(F x) {
    const float32x4_t least = vdupq_n_f32(kExpMin), most = vdupq_n_f32(kExpMax);
    return make([&](int i) {
      const float32x4_t low = vbslq_f32(vcgeq_f32(x.v[i], least), x.v[i], least);
      return vbslq_f32(vcleq_f32(low, most), low, most);
    });
  }
  static F at_most(F x, F limit) {
    return make([&](int i) { return vbslq_f32(vcgtq_f32(x.v[i], limit.v[i]), limit.v[i], x.v[i]); });
  }
  static F at_least(F x, F limit) {
    return make([&](int i) { return vbslq_f32(vcltq_f32(x.v[i], limit.v[i]), limit.v[i], x.v[i]); });
  }
  static F finish_exp(F x, F inside) {
    const float32x4_t infinity = vreinterpretq_f32_u32(vdupq_n_u32(0x7f800000U));
    return make([&](int i) {
      const uint32x4_t not_below = vcgeq_f32(x.v[i], vdupq_n_f32(kExpMin));
      float32x4_t y = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(inside.v[i]), not_below));
      y = vbslq_f32(vcgtq_f32(x.v[i], vdupq_n_f32(kExpMax)), infinity, y);
      return vbslq_f32(vceqq_f32(x.v[i], x.v[i]), y, x.v[i]);
    });
  }

  static F load(const float* p) {
    return make([&](int i) { return vld1q_f32(p + 4 * i); });
  }
  static F load(const Half* p) {
    return make([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(load4(p + 4 * i))); });
  }
  static F load(const Brain* p) {
    return make([&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(load4(p + 4 * i), 16)); });
  }
  static F load(const Eight* p) {
    const int8x16_t codes = vld1q_s8(&p->code);
    const int16x8_t low = vmovl_s8(vget_low_s8(codes)), high = vmovl_s8(vget_high_s8(codes));
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
  }
  static F load_part(const float* p, int n, float fill) {
    float buffer[16];
    for (int i = 0; i < 16; ++i) buffer[i] = i < n ? p[i] : fill;
    return load(buffer);
  }
  static void store(float* p, F v) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v.v[i]);
  }
  static void store(Half* p, F v) {
    for (int i = 0; i < 4; ++i) store4(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(v.v[i])));
  }
  static void store(Brain* p, F v) {
    for (int i = 0; i < 4; ++i) {
      const uint32x4_t bits = vreinterpretq_u32_f32(v.v[i]);
      const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
      const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
      const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
      store4(p + 4 * i, vshrn_n_u32(vbslq_u32(vceqq_f32(v.v[i], v.v[i]), rounded, quiet), 16));
    }
  }
  static void store_part(float* p, F v, int n) {
    float buffer[16];
    store(buffer, v);
    for (int i = 0; i < n; ++i) p[i] = buffer[i];
  }
  static F within(F v, F other, int lo, int hi) {
    const int32_t first[4] = {0, 1, 2, 3};
    const int32x4_t lanes = vld1q_s32(first);
    return make([&](int i) {
      const int32x4_t lane = vaddq_s32(lanes, vdupq_n_s32(4 * i));
      const uint32x4_t inside = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(lo)), vcltq_s32(lane, vdupq_n_s32(hi)));
      return vbslq_f32(inside, v.v[i], other.v[i]);
    });
  }
  static F max_number(F v, F m) {
    return make([&](int i) { return vbslq_f32(vcgtq_f32(v.v[i], m.v[i]), v.v[i], m.v[i]); });
  }
  static float tree16(F v) {
    const float32x4_t t4 = vaddq_f32(vaddq_f32(v.v[0], v.v[2]), vaddq_f32(v.v[1], v.v[3]));
    const float32x2_t t2 = vadd_f32(vget_low_f32(t4), vget_high_f32(t4));
    return vget_lane_f32(t2, 0) + vget_lane_f32(t2, 1);
  }
  static float max16(F v) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(v.v[0], v.v[1]), vmaxq_f32(v.v[2], v.v[3]))); }
  static int first_equal(F v, F x) {
    float a[16], b[16];
    store(a, v);
    store(b, x);
    int i = 0;
    while (i < 16 && !(a[i] == b[i])) ++i;
    return i;
  }
  static void load_pairs(const float* p, F& even, F& odd) {
    for (int i = 0; i < 4; ++i) {
      const float32x4x2_t both = vld2q_f32(p + 8 * i);
      even.v[i] = both.val[0];
      odd.v[i] = both.val[1];
    }
  }
  static void store_pairs(float* p, F even, F odd) {
    for (int i = 0; i < 4; ++i) vst2q_f32(p + 8 * i, float32x4x2_t{{even.v[i], odd.v[i]}});
  }
  static void prefetch(const void* p) { __builtin_prefetch(p); }

 private:
  template <class T>
  static uint16x4_t load4(const T* p) {
    return vld1_u16(&p->bits);
  }
  template <class T>
  static void store4(T* p, uint16x4_t v) {
    vst1_u16(&p->bits, v);
  }
};

}  // namespace cohort::numerics
