;; attack: An error of 1 GiB that is all there, in an instance that may have so much.
;; expect: score -> bad-answer
;; limits: profile=engine memory_bytes=2147483648 fuel_base=1000000000000

;; in score:
(drop (memory.grow (i32.const 16384)))
(call $error (i32.const 65536) (i32.const 0x40000000))
