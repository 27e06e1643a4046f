;; attack: Uses 128-bit arithmetic, which no policy needs.
;; expect: load -> invalid
;; proposal: WIDE_ARITHMETIC

;; in core:
(func (param i64 i64) (result i64 i64) (i64.mul_wide_u (local.get 0) (local.get 1)))
