;; attack: Uses values between components, which no policy needs.
;; expect: load -> imports
;; proposal: CM_VALUES

;; in component:
(import "v" (value $v u32))
(export "w" (value $v))
