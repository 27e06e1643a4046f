;; attack: Subnormal costs that differ in their last bit: accepted, and told from each other.
;; expect: decision -> ok
;; worker: 3

;; in score:
(f64.store (local.get $numbers) (f64.const 0x3p-1074))
(f64.store offset=8 (local.get $numbers) (f64.const 0x2p-1074))
(f64.store offset=16 (local.get $numbers) (f64.const 0x1p-1074))
(call $list (local.get $numbers) (local.get $count))
