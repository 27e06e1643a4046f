;; attack: Fills half a page for ever: little code, much work.
;; expect: score -> out-of-fuel

;; in score:
(loop $again (memory.fill (i32.const 32768) (i32.const 1) (i32.const 32768)) (br $again))
(unreachable)
