;; attack: A cost that is a signalling NaN.
;; expect: score -> bad-answer

;; in score:
(f64.store offset=8 (local.get $numbers) (f64.const nan:0x4000000000000))
(call $list (local.get $numbers) (local.get $count))
