;; attack: Grows its memory by -1 pages.
;; expect: score -> memory

;; in score:
(drop (memory.grow (i32.const -1))) (unreachable)
