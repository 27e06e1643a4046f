;; attack: Zeros of both signs: accepted, equal, and the first row wins.
;; expect: decision -> ok
;; worker: 1

;; in score:
(f64.store (local.get $numbers) (f64.const 0))
(f64.store offset=8 (local.get $numbers) (f64.const -0))
(f64.store offset=16 (local.get $numbers) (f64.const 0))
(call $list (local.get $numbers) (local.get $count))
