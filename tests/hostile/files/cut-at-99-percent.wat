;; attack: The first 99 % of a good policy.
;; expect: load -> malformed
;; bytes: cut 99
