;; attack: Uses vector instructions whose result depends on the machine, which no policy needs.
;; expect: load -> invalid
;; proposal: RELAXED_SIMD

;; in core:
(func (param v128) (result v128) (i32x4.relaxed_trunc_f32x4_s (local.get 0)))
