;; attack: A cost that is a NaN with its sign set and a payload.
;; expect: score -> bad-answer

;; in score:
(f64.store offset=8 (local.get $numbers) (f64.const -nan:0xdeadbeef))
(call $list (local.get $numbers) (local.get $count))
