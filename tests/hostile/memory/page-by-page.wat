;; attack: Grows its memory a page at a time, for ever.
;; expect: score -> memory

;; in score:
(loop $more (drop (memory.grow (i32.const 1))) (br $more))
(unreachable)
