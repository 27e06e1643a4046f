;; attack: A cost below every other.
;; expect: score -> bad-answer

;; in score:
(f64.store offset=8 (local.get $numbers) (f64.const -inf))
(call $list (local.get $numbers) (local.get $count))
