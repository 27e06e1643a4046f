;; attack: Logs 1,000 messages and then answers: what exceeds its bytes is cut.
;; expect: decision -> ok
;; worker: 3
;; imports: log

;; in score:
(loop $again
  (call $log (i32.const 2) (i32.const 1024) (i32.const 12))
  (local.set $i (i32.add (local.get $i) (i32.const 1)))
  (br_if $again (i32.lt_u (local.get $i) (i32.const 1000))))
(call $list (local.get $numbers) (local.get $count))
