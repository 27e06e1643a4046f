;; attack: An answer of a third kind.
;; expect: score -> bad-answer

;; in score:
(call $answer (i32.const 2) (i32.const 0) (i32.const 0))
