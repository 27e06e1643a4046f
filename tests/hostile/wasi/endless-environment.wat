;; attack: Reads the environment for ever.
;; expect: score -> out-of-fuel
;; imports: wasi

;; in score:
(loop $again (call $environment (i32.const 9000)) (br $again)) (unreachable)
