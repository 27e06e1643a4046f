;; attack: Reads beyond its memory.
;; expect: score -> trap

;; in score:
(drop (i32.load (i32.const -4))) (unreachable)
