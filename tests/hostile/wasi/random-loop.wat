;; attack: Draws random bytes for ever.
;; expect: score -> out-of-fuel
;; imports: wasi

;; in score:
(loop $again (call $bytes (i64.const 8192) (i32.const 9000)) (br $again)) (unreachable)
