;; attack: A cost that is no number.
;; expect: score -> bad-answer

;; in score:
(f64.store offset=8 (local.get $numbers) (f64.const nan))
(call $list (local.get $numbers) (local.get $count))
