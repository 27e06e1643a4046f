;; attack: Reads 16 bytes of which one is beyond its memory.
;; expect: score -> trap

;; in score:
(drop (v128.load (i32.const 65521))) (unreachable)
