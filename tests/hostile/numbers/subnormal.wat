;; attack: The smallest cost above 0: accepted, and lower than the others.
;; expect: decision -> ok
;; worker: 2

;; in score:
(f64.store offset=8 (local.get $numbers) (f64.const 0x1p-1074))
(call $list (local.get $numbers) (local.get $count))
