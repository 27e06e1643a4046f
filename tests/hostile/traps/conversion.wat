;; attack: Makes an integer of no number.
;; expect: score -> trap

;; in score:
(drop (i32.trunc_f64_s (f64.const nan))) (unreachable)
