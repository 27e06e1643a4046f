;; attack: Writes the whole memory to standard output, as often as its fuel lasts.
;; expect: score -> out-of-fuel
;; imports: wasi

;; in score:
(local.set $i (call $stdout))
(loop $again (call $write (local.get $i) (i32.const 0) (i32.const 65536) (i32.const 9000)) (br $again)) (unreachable)
