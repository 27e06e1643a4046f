;; attack: `select` never returns.
;; expect: select -> out-of-fuel

;; in select:
(loop $again (br $again)) (unreachable)
