;; attack: Writes bytes that never end a line, and are no text either.
;; expect: decision -> ok
;; imports: wasi

;; in core:
(data (i32.const 1100) "\ff\fe\00\c3")

;; in score:
(local.set $i (call $stdout)) (local.set $j (i32.const 1000))
(loop $again
  (call $write (local.get $i) (i32.const 1100) (i32.const 4) (i32.const 9000))
  (br_if $again (local.tee $j (i32.sub (local.get $j) (i32.const 1)))))
(call $list (local.get $numbers) (local.get $count))
