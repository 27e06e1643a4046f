;; attack: Refuses its parameters in 1 GiB of words.
;; expect: configure -> bad-answer
;; limits: profile=engine memory_bytes=2147483648

;; in configure:
(drop (memory.grow (i32.const 16384)))
(call $error (i32.const 65536) (i32.const 0x40000000))
