;; attack: An answer of kind -1.
;; expect: score -> bad-answer

;; in score:
(call $answer (i32.const -1) (i32.const 0) (i32.const 0))
