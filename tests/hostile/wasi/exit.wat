;; attack: Ends itself by exit, as a program would end its process.
;; expect: score -> trap
;; imports: wasi

;; in score:
(call $exit (i32.const 0)) (unreachable)
