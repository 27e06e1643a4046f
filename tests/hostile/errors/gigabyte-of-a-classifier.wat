;; attack: A classifier fails with 1 GiB of words.
;; expect: classify -> bad-answer
;; limits: profile=engine memory_bytes=2147483648 classify_fuel=1000000000000

;; in classify:
(drop (memory.grow (i32.const 16384)))
(drop (call $failed))
(i32.store (i32.const 2064) (i32.const 65536))
(i32.store (i32.const 2068) (i32.const 0x40000000))
(i32.const 2056)
