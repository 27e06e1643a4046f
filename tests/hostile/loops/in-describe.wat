;; attack: `describe` never returns.
;; expect: describe -> out-of-fuel

;; in describe:
(loop $again (br $again)) (unreachable)
