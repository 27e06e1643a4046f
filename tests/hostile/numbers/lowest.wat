;; attack: The lowest cost that is finite: accepted, and it wins.
;; expect: decision -> ok
;; worker: 2

;; in score:
(f64.store offset=8 (local.get $numbers) (f64.const -0x1.fffffffffffffp+1023))
(call $list (local.get $numbers) (local.get $count))
