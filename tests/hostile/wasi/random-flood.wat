;; attack: Asks for all the random bytes there are.
;; expect: score -> trap
;; imports: wasi

;; in score:
(call $bytes (i64.const -1) (i32.const 9000)) (unreachable)
