;; attack: The first 90 % of a good policy.
;; expect: load -> malformed
;; bytes: cut 90
