;; attack: `cabi_realloc` never returns, from the first text that the host passes on.
;; expect: configure -> out-of-fuel

;; in realloc:
(loop $again (br $again)) (unreachable)
