;; attack: Sleeps for a century.
;; expect: decision -> ok
;; imports: wasi

;; in score:
(local.set $i (call $later (i64.const 3155760000000000000)))
(call $block (local.get $i)) (call $drop (local.get $i))
(call $list (local.get $numbers) (local.get $count))
